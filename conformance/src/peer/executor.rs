//! Performs a peer's commands on an adapter.

use std::time::Duration;

use dat_engine::{ConnectOptions, Cr, Ep, Evd, Ia, Lmr, Psp, Pz, Region};
use dat_types::{
    CloseFlags, CompletionFlags, Error, EvdFlags, EventData, LmrCookie, LmrTriplet, ObjectId, Privileges,
    PspFlags, RmrTriplet, Timeout, VaType,
};

use crate::os;

use super::command::{Answer, Command, Far, Posted, Refusal};

/// An adapter and the objects that commands made.
pub(crate) struct World {
    objects: Vec<Option<Object>>,
    ia: Ia,
}

enum Object {
    Pz(Pz),
    Evd(Evd),
    Lmr(Lmr),
    Ep(Ep),
    Psp(Psp),
    Cr(Cr),
}

type Result<T> = std::result::Result<T, Refusal>;

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        Refusal { text: error.to_string() }
    }
}

macro_rules! getter {
    ($name:ident, $kind:ident) => {
        fn $name(&self, handle: u32) -> Result<&$kind> {
            match self.objects.get(handle as usize) {
                Some(Some(Object::$kind(object))) => Ok(object),
                _ => Err(Refusal { text: format!("handle {handle} is no {}", stringify!($kind)) }),
            }
        }
    };
}

impl World {
    pub(crate) fn new(ia: Ia) -> World {
        World { objects: Vec::new(), ia }
    }

    getter!(pz, Pz);
    getter!(evd, Evd);
    getter!(lmr, Lmr);
    getter!(ep, Ep);
    getter!(cr, Cr);

    fn keep(&mut self, object: Object) -> u32 {
        self.objects.push(Some(object));
        self.objects.len() as u32 - 1
    }

    fn made(&mut self, object: Object, id: ObjectId) -> Answer {
        Answer::Made { handle: self.keep(object), id: id.0 }
    }

    pub(crate) fn perform(&mut self, command: &Command) -> Result<Answer> {
        match command {
            Command::Address => Ok(Answer::Address((self.ia.query()?.address, 0).into())),
            Command::Pz => {
                let pz = self.ia.pz_create()?;
                let id = pz.id();
                Ok(self.made(Object::Pz(pz), id))
            }
            Command::Evd { qlen, flags } => {
                let evd = self.ia.evd_create(*qlen, EvdFlags::from_bits_retain(*flags))?;
                let id = evd.id();
                Ok(self.made(Object::Evd(evd), id))
            }
            Command::Lmr { pz, len, privileges } => {
                let rights = Privileges::from_bits_retain(*privileges);
                let lmr = self.ia.lmr_create(self.pz(*pz)?, self.ia.alloc(*len)?, rights)?;
                let (addr, rmr_context) = (lmr.memory().addr(), lmr.rmr_context());
                Ok(Answer::Region { handle: self.keep(Object::Lmr(lmr)), addr, rmr_context })
            }
            Command::Shared { pz, path, len, cookie } => {
                let memory = os::shared_memory(path, *len)
                    .map_err(|error| Refusal { text: format!("{}: {error}", path.display()) })?;
                let region = Region::Shared(memory, LmrCookie([*cookie; 40]));
                let lmr = self.ia.lmr_create_from(region, self.pz(*pz)?, Privileges::ALL, VaType::Virtual)?;
                let (addr, rmr_context) = (lmr.memory().addr(), lmr.rmr_context());
                Ok(Answer::Region { handle: self.keep(Object::Lmr(lmr)), addr, rmr_context })
            }
            Command::Ep { pz, recv, request, conn, attr } => {
                let attr = attr.over(&self.ia).map_err(|stop| Refusal { text: format!("{stop:?}") })?;
                let [recv, request, conn] = [self.evd(*recv)?, self.evd(*request)?, self.evd(*conn)?];
                let pz = self.pz(*pz)?;
                let ep = self.ia.ep_create(Some(pz), Some(recv), Some(request), Some(conn), Some(&attr))?;
                let id = ep.id();
                Ok(self.made(Object::Ep(ep), id))
            }
            Command::Psp { evd, by_provider } => {
                let flags = if *by_provider { PspFlags::Provider } else { PspFlags::Consumer };
                let psp = self.ia.psp_create_any(self.evd(*evd)?, flags)?;
                let port = psp.conn_qual();
                Ok(Answer::Listening { handle: self.keep(Object::Psp(psp)), port })
            }
            Command::Qos => Ok(Answer::Offered(self.ia.provider_query()?.qos_supported.0)),
            Command::Free { handle } => self.free(*handle),
            Command::Wait { evd, ms } => self.wait(*evd, *ms),
            Command::Request { cr } => {
                let param = self.cr(*cr)?.query()?;
                Ok(Answer::PendingRequest {
                    remote: param.remote_address,
                    remote_port: param.remote_port_qual,
                    conn_qual: param.conn_qual,
                    data: param.private_data.to_vec(),
                })
            }
            other => self.on_connection(other),
        }
    }

    fn on_connection(&mut self, command: &Command) -> Result<Answer> {
        match command {
            Command::Connect { ep, address, port, data, ms } => {
                let options = ConnectOptions {
                    private_data: data,
                    timeout: Timeout::from(Duration::from_millis(*ms)),
                    ..ConnectOptions::new(*address, *port)
                };
                self.ep(*ep)?.connect(&options)?;
            }
            Command::CommonConnect { ep, address, ms } => {
                self.ep(*ep)?.common_connect(*address, Timeout::from(Duration::from_millis(*ms)), b"")?;
            }
            Command::Accept { cr, ep, data } => {
                let ep = ep.map(|ep| self.ep(ep)).transpose()?;
                self.cr(*cr)?.accept(ep, data)?;
            }
            Command::Handoff { cr, port } => self.cr(*cr)?.handoff(*port)?,
            Command::Reject { cr, data } => self.cr(*cr)?.reject(data)?,
            Command::Disconnect { ep, graceful } => {
                let flags = if *graceful { CloseFlags::Graceful } else { CloseFlags::Abrupt };
                self.ep(*ep)?.disconnect(flags)?;
            }
            Command::Reset { ep } => self.ep(*ep)?.reset()?,
            Command::State { ep } => return Ok(Answer::State(self.ep(*ep)?.status()?.state.name().into())),
            other => return self.on_memory(other),
        }
        Ok(Answer::Done)
    }

    fn on_memory(&mut self, command: &Command) -> Result<Answer> {
        match command {
            Command::Post { ep, segment: (lmr, offset, len), cookie, flags, what } => {
                let segment = self.lmr(*lmr)?.triplet(*offset, *len);
                self.post(*ep, &[segment], *cookie, CompletionFlags::from_bits_retain(*flags), *what)?;
            }
            Command::Recv { ep, segments, cookie } => {
                let mut iov = Vec::new();
                for (lmr, offset, len) in segments {
                    iov.push(self.lmr(*lmr)?.triplet(*offset, *len));
                }
                self.ep(*ep)?.post_recv(&iov, *cookie, CompletionFlags::empty())?;
            }
            Command::Store { lmr, offset, bytes } => self.lmr(*lmr)?.memory().write(*offset, bytes),
            Command::Load { lmr, offset, len } => {
                let mut bytes = vec![0; *len as usize];
                self.lmr(*lmr)?.memory().read(*offset, &mut bytes);
                return Ok(Answer::Bytes(bytes));
            }
            other => return Err(Refusal { text: format!("no executor for {other:?}") }),
        }
        Ok(Answer::Done)
    }

    fn post(
        &self,
        ep: u32,
        iov: &[LmrTriplet],
        cookie: u64,
        flags: CompletionFlags,
        what: Posted,
    ) -> Result<()> {
        let ep = self.ep(ep)?;
        let far = |(address, length, context): Far| RmrTriplet { address, length, context };
        match what {
            Posted::Send => ep.post_send(iov, cookie, flags),
            Posted::Write { to } => ep.post_rdma_write(iov, cookie, far(to), flags),
            Posted::SendInvalidate { context } => ep.post_send_with_invalidate(iov, cookie, flags, context),
            Posted::SendImmed { value } => ep.post_send_immed(iov, cookie, value, flags),
            Posted::WriteImmed { to, value } => ep.post_rdma_write_immed(iov, cookie, far(to), value, flags),
        }?;
        Ok(())
    }

    fn free(&mut self, handle: u32) -> Result<Answer> {
        match self.objects.get(handle as usize) {
            Some(Some(Object::Pz(pz))) => pz.free()?,
            Some(Some(Object::Evd(evd))) => evd.free()?,
            Some(Some(Object::Lmr(lmr))) => lmr.free()?,
            Some(Some(Object::Ep(ep))) => ep.free()?,
            Some(Some(Object::Psp(psp))) => psp.free()?,
            _ => return Err(Refusal { text: format!("handle {handle} is nothing that can be freed") }),
        }
        self.objects[handle as usize] = None;
        Ok(Answer::Done)
    }

    fn wait(&mut self, evd: u32, ms: u64) -> Result<Answer> {
        let event = match self.evd(evd)?.wait(Timeout::from(Duration::from_millis(ms)), 1) {
            Ok((event, _)) => event,
            Err(error) if error.error.kind() == dat_types::ReturnType::TimeoutExpired => {
                return Ok(Answer::Nothing);
            }
            Err(error) => return Err(error.error.into()),
        };
        Ok(match event.data {
            EventData::Dto(dto) => Answer::Dto {
                ep: dto.ep.0,
                cookie: dto.cookie,
                status: dto.status as u32,
                operation: dto.operation as u32,
                length: dto.length,
                value: dto.value,
            },
            EventData::ConnectionRequest { cr, .. } => {
                let cr = self.ia.cr(cr)?;
                Answer::Arrived { cr: self.keep(Object::Cr(cr)) }
            }
            EventData::Connection { kind, ep, private_data, .. } => {
                Answer::Connection { ep: ep.0, kind: kind as u32, data: private_data.to_vec() }
            }
            other => Answer::Other(format!("{other:?}")),
        })
    }
}
