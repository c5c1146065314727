//! `dat_ep_create`: which completion attributes may share a dispatcher (rules K-5 to K-9).

use dat_types::Error;

use crate::clauses::prelude::*;

clauses! {
    27 "EVD_THRESHOLD requests on a dispatcher: UNSIGNALLED requests of another endpoint are refused" => requests_disagree;
    28 "Completions and connection events: UNSIGNALLED and SOLICITED_WAIT are refused" => mixed_kinds_refused;
    29 "Completions and connection events: EVD_THRESHOLD and DEFAULT are accepted" => mixed_kinds_accepted;
    30 "UNSIGNALLED requests on a dispatcher: EVD_THRESHOLD receives are refused" => directions_disagree;
    31 "SOLICITED_WAIT receives of two endpoints share a dispatcher" => solicited_together;
    32 "SOLICITED_WAIT receives share a dispatcher with no other stream" => solicited_alone;
    33 "SUPPRESS and BARRIER_FENCE as receive attributes: INVALID_PARAMETER" => recv_flags;
    34 "Freeing the last endpoint that disagrees allows another mode" => mode_released;
}

const UNSIGNALLED: CompletionFlags = CompletionFlags::UNSIGNALLED;
const SOLICITED: CompletionFlags = CompletionFlags::SOLICITED_WAIT;
const THRESHOLD: CompletionFlags = CompletionFlags::EVD_THRESHOLD;

/// An adapter with spare dispatchers.
struct Desk {
    a: LocalEnd,
    /// For completions and connection events.
    mixed: Evd,
    dto: Evd,
}

impl Desk {
    fn new(t: &TestContext) -> Result<Desk, Stop> {
        let a = t.local()?;
        let mixed = a.ia.evd_create(64, EvdFlags::DTO | EvdFlags::CONNECTION)?;
        let dto = a.ia.evd_create(64, EvdFlags::DTO)?;
        Ok(Desk { a, mixed, dto })
    }

    /// An endpoint on these dispatchers with these completion attributes.
    fn ep(&self, evds: [&Evd; 3], recv: CompletionFlags, request: CompletionFlags) -> Result<Ep, Error> {
        let spec = AttrSpec { recv_flags: recv.bits(), request_flags: request.bits(), ..AttrSpec::default() };
        let Ok(attr) = spec.over(&self.a.ia) else {
            return Err(Error::bare(ReturnType::InternalError, Subtype::None));
        };
        self.a.ia.ep_create(Some(&self.a.pz), Some(evds[0]), Some(evds[1]), Some(evds[2]), Some(&attr))
    }

    /// A dispatcher nothing else uses.
    fn fresh(&self) -> Result<Evd, Stop> {
        Ok(self.a.ia.evd_create(64, EvdFlags::DTO)?)
    }
}

fn requests_disagree(t: &TestContext) -> Outcome {
    let desk = Desk::new(t)?;
    let conn = &desk.a.conn;
    desk.ep([&desk.fresh()?, &desk.dto, conn], PLAIN, THRESHOLD)?;
    let result = desk.ep([&desk.fresh()?, &desk.dto, conn], PLAIN, UNSIGNALLED);
    t.refused("UNSIGNALLED beside THRESHOLD", result, ReturnType::InvalidParameter)
}

fn mixed_kinds_refused(t: &TestContext) -> Outcome {
    let desk = Desk::new(t)?;
    let fresh = desk.fresh()?;
    let mixed = &desk.mixed;
    let result = desk.ep([&fresh, mixed, mixed], PLAIN, UNSIGNALLED);
    t.refused("UNSIGNALLED requests", result, ReturnType::InvalidParameter)?;
    let result = desk.ep([mixed, &fresh, mixed], UNSIGNALLED, PLAIN);
    t.refused("UNSIGNALLED receives", result, ReturnType::InvalidParameter)?;
    let result = desk.ep([mixed, &fresh, mixed], SOLICITED, PLAIN);
    t.refused("SOLICITED_WAIT receives", result, ReturnType::InvalidParameter)
}

fn mixed_kinds_accepted(t: &TestContext) -> Outcome {
    let desk = Desk::new(t)?;
    let mixed = &desk.mixed;
    desk.ep([mixed, mixed, mixed], THRESHOLD, THRESHOLD)?;
    desk.ep([mixed, mixed, mixed], PLAIN, PLAIN)?;
    Ok(())
}

fn directions_disagree(t: &TestContext) -> Outcome {
    let desk = Desk::new(t)?;
    let conn = &desk.a.conn;
    desk.ep([&desk.fresh()?, &desk.dto, conn], PLAIN, UNSIGNALLED)?;
    let result = desk.ep([&desk.dto, &desk.fresh()?, conn], THRESHOLD, PLAIN);
    t.refused("THRESHOLD receives beside UNSIGNALLED requests", result, ReturnType::InvalidParameter)
}

fn solicited_together(t: &TestContext) -> Outcome {
    let desk = Desk::new(t)?;
    for _ in 0..2 {
        desk.ep([&desk.dto, &desk.fresh()?, &desk.a.conn], SOLICITED, PLAIN)?;
    }
    Ok(())
}

fn solicited_alone(t: &TestContext) -> Outcome {
    let desk = Desk::new(t)?;
    let (fresh, conn) = (desk.fresh()?, &desk.a.conn);
    desk.ep([&desk.mixed, &fresh, conn], SOLICITED, PLAIN)?;
    let result = desk.ep([&desk.mixed, &fresh, conn], THRESHOLD, PLAIN);
    t.refused("other receives", result, ReturnType::InvalidParameter)?;
    let result = desk.ep([&fresh, &desk.mixed, conn], PLAIN, PLAIN);
    t.refused("requests", result, ReturnType::InvalidParameter)?;
    let result = desk.ep([&fresh, &fresh, &desk.mixed], PLAIN, PLAIN);
    t.refused("connection events", result, ReturnType::InvalidParameter)
}

fn recv_flags(t: &TestContext) -> Outcome {
    let desk = Desk::new(t)?;
    for flags in [CompletionFlags::SUPPRESS, CompletionFlags::BARRIER_FENCE] {
        let result = desk.ep([&desk.dto, &desk.fresh()?, &desk.a.conn], flags, PLAIN);
        t.refused(&format!("{flags:?}"), result, ReturnType::InvalidParameter)?;
    }
    Ok(())
}

fn mode_released(t: &TestContext) -> Outcome {
    let desk = Desk::new(t)?;
    let (fresh, conn) = (desk.fresh()?, &desk.a.conn);
    let first = desk.ep([&fresh, &desk.dto, conn], PLAIN, THRESHOLD)?;
    let result = desk.ep([&fresh, &desk.dto, conn], PLAIN, UNSIGNALLED);
    t.refused("while the first one is there", result, ReturnType::InvalidParameter)?;
    first.free()?;
    desk.ep([&fresh, &desk.dto, conn], PLAIN, UNSIGNALLED)?;
    Ok(())
}
