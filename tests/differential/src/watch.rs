//! Runs a program on a thread of its own, so that a call that does not return, or panics, is a disagreement like others.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;

use crate::program::Program;
use crate::pulse::Pulse;
use crate::run::{Disagreement, Trace, run};
use crate::subject::{Patience, Subject};

/// Runs `program` on one provider next to the model. The thread of a run that hangs is left behind.
pub(crate) fn watched(
    program: &Program,
    subject: &Subject,
    patience: Patience,
) -> Result<Trace, Disagreement> {
    let pulse = Arc::new(Pulse::default());
    let (done, result) = sync_channel(1);
    let (own, its_program, its_subject) = (pulse.clone(), program.clone(), subject.clone());
    let body = move || {
        // No receiver is left after a run was abandoned.
        let _ = done.send(run(&its_program, &its_subject, patience, &own));
    };
    let wrong = |what: String| {
        let step = pulse.step.load(Ordering::Relaxed);
        let call = program.0.get(step).map_or("at the end".into(), |step| format!("{step:?}"));
        Disagreement { label: subject.label.clone(), step, what: format!("{call}: {what}") }
    };
    let thread = thread::Builder::new().name("program".into()).spawn(body);
    let thread = thread.map_err(|error| wrong(format!("no thread to run it on: {error}")))?;
    let mut beats = pulse.beats.load(Ordering::Relaxed);
    loop {
        match result.recv_timeout(patience.call) {
            Ok(result) => return result,
            Err(RecvTimeoutError::Timeout) => {
                let now = pulse.beats.load(Ordering::Relaxed);
                if now == beats {
                    return Err(wrong("a call does not return".into()));
                }
                beats = now;
            }
            Err(RecvTimeoutError::Disconnected) => {
                let why = thread.join().err().map_or("it ended".into(), |payload| words(&*payload));
                return Err(wrong(format!("panicked: {why}")));
            }
        }
    }
}

fn words(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without words".into())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use dat_engine::Plugin;
    use dat_plugin::{Config, Failure, Probe, Provider, ProviderInfo};

    use super::*;

    /// Never opens.
    struct Stuck;

    impl Provider for Stuck {
        type Device = dat_loopback::LoopDevice;
        const INFO: ProviderInfo = ProviderInfo { name: "stuck", version: "0", description: "never opens" };

        fn open(_: &Config) -> Result<Arc<Self::Device>, Failure> {
            loop {
                thread::park();
            }
        }

        fn probe(_: &Config) -> Vec<Probe> {
            Vec::new()
        }
    }

    #[test]
    fn a_call_that_does_not_return_is_told_with_its_step() {
        let plugin = Plugin::of::<Stuck>();
        let subject = Subject { label: "stuck".into(), plugin, config: Config::default(), soft_roce: false };
        let patience = Patience { event: Duration::from_millis(50), call: Duration::from_millis(200) };
        let start = Instant::now();
        let program = crate::generate(1);
        let found = watched(&program, &subject, patience).expect_err("it hangs");
        assert!(start.elapsed() < Duration::from_secs(20), "after {:?}", start.elapsed());
        assert_eq!((found.label.as_str(), found.step), ("stuck", 0));
        assert!(
            found.what.starts_with(&program.0[0].name()) && found.what.ends_with("a call does not return"),
            "{found}"
        );
    }
}
