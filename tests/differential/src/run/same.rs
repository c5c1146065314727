//! Compares states, parameters and memory with the model's.

use std::time::{Duration, Instant};

use dat_types::{ReturnType, Timeout};

use super::trace::text_of;
use super::{Run, Seen};
use crate::model::memory::{REGIONS, REMOTE, REMOTE_ATOMIC};
use crate::program::REGION;
use crate::world::attrs_of;

impl Run<'_> {
    pub(super) fn same_states(&self) -> Seen {
        for (index, ep) in self.model.eps.iter().enumerate().filter(|(_, ep)| ep.alive) {
            let status = self.world.eps[index].status().map_err(|error| error.to_string())?;
            if status.state != ep.state {
                return Err(format!("endpoint {index} is {} instead of {}", status.state, ep.state));
            }
            let idle = (ep.recvs.is_empty(), ep.requests.is_empty());
            if (status.recv_idle, status.request_idle) != idle {
                return Err(format!("endpoint {index} has {status:?} instead of idle flags {idle:?}"));
            }
        }
        Ok(())
    }

    pub(super) fn same_parameters(&self, index: usize) -> Seen {
        let param = self.world.eps[index].query().map_err(|error| error.to_string())?;
        let it = &self.model.eps[index];
        let half = &self.world.sides[it.side];
        if !it.open && attrs_of(&param.attr) != it.shape.attrs {
            return Err(format!("attributes {:?} instead of {:?}", attrs_of(&param.attr), it.shape.attrs));
        }
        let evds = [
            ("receive", &param.recv_evd, it.shape.recv),
            ("request", &param.request_evd, it.shape.request),
            ("connect", &param.connect_evd, it.shape.conn),
        ];
        for (what, seen, want) in evds {
            let want = want.map(|evd| half.evds[usize::from(evd)].id());
            let seen = seen.as_ref().map(dat_engine::Evd::id);
            if seen != want {
                return Err(format!("{what} dispatcher {seen:?} instead of {want:?}"));
            }
        }
        let zone = it.shape.zone.map(|zone| half.zones[usize::from(zone)].id());
        let queue = it.queue.map(|queue| self.world.queues[queue].id());
        if param.srq.as_ref().map(dat_engine::Srq::id) != queue {
            return Err(format!("queue {:?} instead of {queue:?}", param.srq));
        }
        match param.pz.as_ref().map(dat_engine::Pz::id) == zone {
            true => Ok(()),
            false => Err(format!("zone {:?} instead of {zone:?}", param.pz)),
        }
    }

    pub(super) fn same_windows(&self, side: usize) -> Seen {
        let half = &self.world.sides[side];
        for (number, it) in self.model.sides[side].windows.iter().enumerate() {
            let (Some(bound), true, Some(window)) = (it.bound, it.is_certain(), &half.windows[number]) else {
                // What an unbound one says is not defined.
                continue;
            };
            let param = window.rmr.query().map_err(|error| error.to_string())?;
            let range = half.regions[usize::from(bound.region)].triplet(bound.offset.into(), bound.len);
            if param.range != Some(range) || param.privileges.bits() != bound.rights {
                return Err(format!("window {number} at side {side} says {param:?} instead of {bound:?}"));
            }
        }
        Ok(())
    }

    pub(super) fn same_queue(&self, index: usize) -> Seen {
        let param = self.world.queues[index].query().map_err(|error| error.to_string())?;
        let it = &self.model.queues[index];
        let zone = self.world.sides[it.side].zones[usize::from(it.zone)].id();
        let counts = (param.available as usize, param.outstanding as usize);
        let right = counts == (it.available(), it.recvs.len())
            && (param.attr.max_recv_dtos, param.attr.low_watermark) == (it.limit, it.mark)
            && param.attr.max_recv_iov >= it.segments
            && param.pz.id() == zone;
        match right {
            true => Ok(()),
            false => Err(format!("queue {index} says {param:?} instead of {it:?}")),
        }
    }

    /// Length, rights and keys of every region are those asked for.
    pub(super) fn same_regions(&self) -> Seen {
        for (side, half) in self.world.sides.iter().enumerate() {
            for (number, (region, (zone, rights))) in half.regions.iter().zip(REGIONS).enumerate() {
                // A freed one answers nothing.
                let Ok(param) = region.query() else { continue };
                let atomics = if self.world.limits().atomics { 0 } else { REMOTE_ATOMIC };
                let wanted = (u64::from(REGION), rights & !atomics, half.zones[usize::from(zone)].id());
                let seen = (param.memory.len(), param.privileges.bits(), param.pz.id());
                if seen != wanted {
                    return Err(format!("region {number} at side {side} is {seen:?} instead of {wanted:?}"));
                }
                if (param.rmr_context != 0) != (rights & !atomics & REMOTE != 0) {
                    return Err(format!("region {number} at side {side} has key {:#x}", param.rmr_context));
                }
            }
        }
        Ok(())
    }

    /// Nothing is left on any dispatcher: waits end when their time is over, with nothing, and say so alike.
    pub(super) fn empty_waits(&mut self) -> Seen {
        const TIME: Duration = Duration::from_millis(1);
        for half in &self.world.sides {
            for (number, evd) in half.evds.iter().enumerate() {
                let begun = Instant::now();
                let result = evd.wait(Timeout::from(TIME), 1);
                let took = begun.elapsed();
                match result {
                    Err(wait) if wait.error.kind() == ReturnType::TimeoutExpired && took >= TIME => {
                        self.trace.texts.push(format!("wait: {}", text_of(&wait.error)));
                    }
                    other => {
                        return Err(format!("a wait on dispatcher {number} gave {other:?} after {took:?}"));
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn same_memory(&self) -> Seen {
        for (side, half) in self.world.sides.iter().enumerate() {
            for (number, region) in half.regions.iter().enumerate() {
                let known = self.model.sides[side].memory.region(number);
                let mut bytes = vec![0; known.len()];
                region.memory().read(0, &mut bytes);
                let differs = |(at, byte): (usize, &u8)| match known[at] {
                    Some(want) if want != *byte => Some((at, *byte, want)),
                    _ => None,
                };
                if let Some((at, byte, want)) = bytes.iter().enumerate().find_map(differs) {
                    return Err(format!(
                        "byte {at} of region {number} at side {side}: {byte} instead of {want}"
                    ));
                }
            }
        }
        Ok(())
    }
}
