//! Consumer notification objects.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use dat_engine::CnoProxy;
use dat_types::{ReturnType, Subtype, Timeout};
use parking_lot::Mutex;

use crate::abi::*;
use crate::code::{Outcome, check_query, code, ensure, parameter, put};
use crate::handle;
use crate::object::{AgentCell, Cno, find, find_ia};

const PROXY_NONE: u32 = 0;
const PROXY_AGENT: u32 = 1;
const PROXY_FD: u32 = 2;

pub unsafe fn create(ia: Handle, agent: Agent, out: *mut Handle) -> Outcome {
    let ia = find_ia(ia)?;
    ensure(!out.is_null(), parameter(Subtype::Arg3))?;
    let engine = ia.engine.cno_create(armed(agent))?;
    let kept = Arc::new(Mutex::new(AgentCell(agent)));
    let handle = ia.adopt(engine.id(), Cno { ia: ia.clone(), engine, agent: kept })?;
    // SAFETY: not null, valid.
    unsafe { put(out, Subtype::Arg3, handle) }
}

pub unsafe fn fd_create(ia: Handle, fd: *mut c_int, out: *mut Handle) -> Outcome {
    let ia = find_ia(ia)?;
    ensure(!fd.is_null(), parameter(Subtype::Arg2))?;
    ensure(!out.is_null(), parameter(Subtype::Arg3))?;
    let engine = ia.engine.cno_fd_create()?;
    let number = engine.fd()?.as_raw_fd();
    let kept = Arc::new(Mutex::new(AgentCell(NO_AGENT)));
    let handle = ia.adopt(engine.id(), Cno { ia: ia.clone(), engine, agent: kept })?;
    // SAFETY: neither is null, both valid.
    unsafe {
        put(fd, Subtype::Arg2, number)?;
        put(out, Subtype::Arg3, handle)
    }
}

pub unsafe fn modify_agent(cno: Handle, agent: Agent) -> Outcome {
    let cno = find::<Cno>(cno, Subtype::HandleCno)?;
    // Held over both, so that a query never tells of an agent that is not there.
    let mut kept = cno.agent.lock();
    cno.engine.modify_agent(armed(agent))?;
    *kept = AgentCell(agent);
    Ok(())
}

pub unsafe fn query(cno: Handle, mask: u32, out: *mut CnoParam) -> Outcome {
    let cno = find::<Cno>(cno, Subtype::HandleCno)?;
    // The header's mask for everything is a bit of its own.
    let wanted = check_query(mask.into(), 7, Subtype::Arg2, out, Subtype::Arg3)?;
    let kept = cno.agent.lock();
    let param = cno.engine.query()?;
    if wanted {
        let (proxy_type, proxy) = match param.proxy {
            CnoProxy::None => (PROXY_NONE, Proxy { agent: NO_AGENT }),
            CnoProxy::Agent(_) => (PROXY_AGENT, Proxy { agent: kept.0 }),
            CnoProxy::Fd => (PROXY_FD, Proxy { fd: cno.engine.fd()?.as_raw_fd() }),
        };
        // SAFETY: not null, valid.
        unsafe { out.write(CnoParam { ia_handle: cno.ia.handle(), proxy_type, proxy }) };
    }
    Ok(())
}

pub unsafe fn free(handle: Handle) -> Outcome {
    let cno = find::<Cno>(handle, Subtype::HandleCno)?;
    cno.engine.free()?;
    cno.ia.disown::<Cno>(handle);
    Ok(())
}

/// The dispatcher is null when the time is up, and when the IA or the last dispatcher is gone.
pub unsafe fn wait(cno: Handle, timeout: u32, out: *mut Handle) -> Outcome {
    let cno = find::<Cno>(cno, Subtype::HandleCno)?;
    ensure(!out.is_null(), parameter(Subtype::Arg3))?;
    let found = cno.engine.wait(Timeout(timeout));
    let empty = code(ReturnType::QueueEmpty, Subtype::None);
    match found.map_err(crate::code::Code::from) {
        // SAFETY: not null, valid.
        Ok(evd) => unsafe { put(out, Subtype::Arg3, evd.map_or(NULL, handle::of)) },
        Err(error) => {
            if error == empty {
                // SAFETY: as above.
                unsafe { put(out, Subtype::Arg3, NULL)? };
            }
            Err(error)
        }
    }
}

pub unsafe fn trigger(cno: Handle, out: *mut Handle) -> Outcome {
    let cno = find::<Cno>(cno, Subtype::HandleCno)?;
    ensure(!out.is_null(), parameter(Subtype::Arg2))?;
    let evd = cno.engine.trigger()?;
    // SAFETY: not null, valid.
    unsafe { put(out, Subtype::Arg2, handle::of(evd)) }
}

const NO_AGENT: Agent = Agent { instance_data: std::ptr::null_mut(), proxy_agent_func: None };

/// The engine's form of an agent; `None` for the null one.
fn armed(agent: Agent) -> Option<dat_engine::Agent> {
    let function = agent.proxy_agent_func?;
    let data = agent.instance_data as usize;
    Some(dat_engine::Agent::new(data as u64, move |evd| {
        // SAFETY: the consumer's function with the consumer's word, called once as agreed.
        unsafe { function(data as *mut _, evd.map_or(NULL, handle::of)) }
    }))
}
