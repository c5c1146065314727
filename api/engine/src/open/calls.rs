//! Opening and closing an interface adapter.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dat_plugin::host::{Device, SpanTable};
use dat_types::{CloseFlags, EvdFlags, Result, Subtype};
use parking_lot::Mutex;

use super::async_evd::AsyncEvd;
use super::{async_evd, thread};
use crate::adapter::inner::{Ia, IaInner, IaOptions};
use crate::adapter::objects::Objects;
use crate::adapter::pending_memory::PendingMemory;
use crate::adapter::progress::mailbox::Progress;
use crate::base::context::Context;
use crate::base::counters::IaCounts;
use crate::base::error;
use crate::cno::Cno;
use crate::evd::inner::Evd;
use crate::memory::lmr::Lmr;
use crate::memory::pz::Pz;
use crate::rmr::Rmr;
use crate::service_point::cr::Cr;
use crate::service_point::point::Point;
use crate::srq::Srq;

impl Ia {
    /// `dat_ia_open`, from an open device on, with an async dispatcher of its own. `name` is the IA name, `version` the
    /// provider's.
    pub fn open(device: Device, name: &str, version: &str, options: IaOptions) -> Result<Ia> {
        Ia::open_with(device, name, version, options, AsyncEvd::Own)
    }

    /// `dat_ia_open` with a choice of async dispatcher (spec: adapter).
    pub fn open_with(
        device: Device,
        name: &str,
        version: &str,
        options: IaOptions,
        async_evd: AsyncEvd,
    ) -> Result<Ia> {
        const CALL: &str = "dat_ia_open";
        let attr = *device.attr();
        let owned = matches!(async_evd, AsyncEvd::Own);
        let async_scope = !matches!(async_evd, AsyncEvd::Exists);
        let given = match async_evd {
            AsyncEvd::Own if options.async_evd_min_qlen <= 0 => {
                let message =
                    format!("an async queue of {} events; at least 1 is needed", options.async_evd_min_qlen);
                return Err(error::parameter(CALL, Subtype::Arg2, message));
            }
            AsyncEvd::Own if options.async_evd_min_qlen as u32 > attr.max_queue_depth => {
                let (asked, max) = (options.async_evd_min_qlen, attr.max_queue_depth);
                let message = format!("an async queue of {asked} events; the IA has at most {max}");
                return Err(error::resources(CALL, Subtype::ResourceTevd, message));
            }
            AsyncEvd::Own => None,
            AsyncEvd::Exists => Some(async_evd::existing(CALL, name)?),
            AsyncEvd::Shared(evd) => {
                async_evd::check(CALL, name, &evd)?;
                Some(evd)
            }
        };
        dat_sync::prepare();
        let progress = Progress::new(&device).map_err(|source| {
            error::resources(CALL, Subtype::ResourceDevice, "no descriptors for the IA's thread")
                .with_source(source)
        })?;
        let inner = Arc::new(IaInner {
            id: crate::base::id::next_id(),
            name: name.to_owned(),
            version: version.to_owned(),
            device: Mutex::new(Some(device)),
            attr,
            closed: AtomicBool::new(false),
            spans: Arc::new(SpanTable::new()),
            objects: Mutex::default(),
            pending_memory: PendingMemory::default(),
            ports: Mutex::default(),
            progress,
            spin: if cfg!(miri) { Duration::ZERO } else { options.spin },
            rules: options.rules,
            async_sink: OnceLock::new(),
            on_event: thread::dispatch,
            async_owned: owned,
            async_scope,
            context: Context::default(),
            counts: IaCounts::default(),
        });
        let async_evd = given
            .unwrap_or_else(|| Evd::new(&inner, options.async_evd_min_qlen as u32, EvdFlags::ASYNC, None));
        async_evd.pin();
        let _ = inner.async_sink.set(async_evd.0.clone());
        let for_thread = inner.clone();
        let thread = std::thread::Builder::new()
            .name(format!("dat-{name}"))
            .spawn(move || thread::run(&for_thread))
            .map_err(|source| {
                async_evd.unpin();
                error::resources(CALL, Subtype::ResourceDevice, "no thread for the IA").with_source(source)
            })?;
        async_evd::announce(name, &async_evd);
        Ok(Ia { inner, thread: Mutex::new(Some(thread)) })
    }

    /// `dat_ia_close`. Graceful: `DAT_INVALID_STATE` while any object but connection requests is left. Abrupt: ends
    /// everything (spec: common), and closes the provider's device. Handles that are left do not keep it
    /// open, unless they keep memory of the device.
    pub fn close(&self, flags: CloseFlags) -> Result<()> {
        const CALL: &str = "dat_ia_close";
        self.device(CALL)?;
        if flags == CloseFlags::Graceful {
            let mut objects = self.inner.objects.lock();
            let left = left(&mut objects);
            if !left.is_empty() {
                let message = format!("{left} are left; free them first or close abruptly");
                return Err(error::state(CALL, Subtype::IaInUse, message));
            }
        }
        if self.inner.closed.swap(true, Ordering::AcqRel) {
            return Err(error::freed(CALL, Subtype::HandleIa, "IA", self.inner.id));
        }
        self.inner.end_all();
        self.inner.progress.stop();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            let _ = thread.join();
        }
        let async_evd = self.async_evd();
        async_evd.unpin();
        if self.inner.async_owned {
            async_evd.kill();
        }
        // Agents learn that the adapter is gone.
        self.inner.progress.call_agents();
        self.inner.pending_memory.clear();
        self.inner.device.lock().take();
        Ok(())
    }
}

impl Drop for Ia {
    fn drop(&mut self) {
        if !self.inner.closed.load(Ordering::Acquire) && self.inner.in_own_process() {
            let _ = self.close(CloseFlags::Abrupt);
        }
    }
}

impl IaInner {
    /// The cascade of an abrupt close, in the specification's order.
    fn end_all(&self) {
        // A request is delivered before, and ended with the rest, or refused.
        let ports = self.ports.lock();
        let mut objects = std::mem::take(&mut *self.objects.lock());
        drop(ports);
        for rmr in objects.of::<Rmr>().values() {
            rmr.kill();
        }
        let (reserved, listening): (Vec<_>, Vec<_>) =
            std::mem::take(objects.of::<Arc<Point>>()).into_values().partition(|point| point.is_reserved());
        for point in reserved {
            point.kill();
        }
        for ep in objects.eps.values() {
            ep.clone().kill();
        }
        for lmr in objects.of::<Lmr>().values() {
            lmr.kill();
        }
        for point in listening {
            point.kill();
        }
        for cr in objects.of::<Cr>().values() {
            cr.abandon();
        }
        for srq in objects.of::<Srq>().values() {
            srq.kill();
        }
        for pz in objects.of::<Pz>().values() {
            pz.kill();
        }
        for evd in objects.of::<Evd>().values() {
            evd.kill();
        }
        for cno in objects.of::<Cno>().values() {
            cno.kill();
        }
    }
}

/// What the consumer made and did not free, in words; empty when there is nothing.
fn left(objects: &mut Objects) -> String {
    let counts = [
        ("endpoints", objects.eps.values().filter(|ep| !ep.is_tentative()).count()),
        ("memory regions", objects.of::<Lmr>().len()),
        ("memory windows", objects.of::<Rmr>().len()),
        ("shared receive queues", objects.of::<Srq>().len()),
        ("protection zones", objects.of::<Pz>().len()),
        ("event dispatchers", objects.of::<Evd>().len()),
        ("notification objects", objects.of::<Cno>().len()),
        ("service points", objects.of::<Arc<Point>>().len()),
    ];
    let parts: Vec<String> =
        counts.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{n} {what}")).collect();
    parts.join(", ")
}
