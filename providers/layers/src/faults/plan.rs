//! What is to go wrong: the parameters, and the decisions drawn from the seed.

use std::fmt;
use std::time::Duration;

use dat_plugin::{Config, Failure, Status};

use crate::layer::Direction;

/// The parameters of the layer. 0 is off.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the parameters of the module documentation")]
pub struct Plan {
    pub seed: u64,
    pub delay: Duration,
    pub delay_one_in: u64,
    pub reorder_one_in: u64,
    pub slow_recv: Duration,
    pub drop_after: u64,
    pub fail_register: u64,
    pub fail_connect: u64,
}

/// What happens to a completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// It is handed out so much later.
    pub delay: Duration,
    /// It waits for one of another channel or direction.
    pub behind: bool,
}

/// What a layer without a fault of its own does: everything an application is promised holds under it.
const MILD: (Duration, u64) = (Duration::from_micros(300), 4);

/// More would be a hanging program, not a slow one.
const MOST_DELAY_US: u64 = 1_000_000;

impl Plan {
    /// Reads the parameters; an unknown one is an error, and so are parameters that ask for no fault. Without any
    /// besides the seed completions are delayed and reordered.
    pub fn parse(config: &Config) -> Result<Plan, Failure> {
        config.check_known(&[
            "seed",
            "delay_us",
            "delay_one_in",
            "reorder_one_in",
            "slow_recv_us",
            "drop_after",
            "fail_register",
            "fail_connect",
        ])?;
        let time = |key: &str| {
            let us: u64 = config.get(key, 0)?;
            if us > MOST_DELAY_US {
                let message = format!("{}: {key} = {us} is more than {MOST_DELAY_US}", config.ia_name);
                return Err(Failure::new(Status::BAD_CONFIG, message));
            }
            Ok(Duration::from_micros(us))
        };
        let mut plan = Plan {
            seed: config.get("seed", 1)?,
            delay: time("delay_us")?,
            delay_one_in: config.get("delay_one_in", 1)?,
            reorder_one_in: config.get("reorder_one_in", 0)?,
            slow_recv: time("slow_recv_us")?,
            drop_after: config.get("drop_after", 0)?,
            fail_register: config.get("fail_register", 0)?,
            fail_connect: config.get("fail_connect", 0)?,
        };
        if config.params.keys().all(|key| key == "seed") {
            (plan.delay, plan.reorder_one_in) = MILD;
        }
        if plan == (Plan { seed: plan.seed, delay_one_in: plan.delay_one_in, ..Plan::none() }) {
            let message = format!("{}: no fault is asked for, as in delay_us = 100", config.ia_name);
            return Err(Failure::new(Status::BAD_CONFIG, message));
        }
        Ok(plan)
    }

    fn none() -> Plan {
        Plan {
            seed: 0,
            delay: Duration::ZERO,
            delay_one_in: 0,
            reorder_one_in: 0,
            slow_recv: Duration::ZERO,
            drop_after: 0,
            fail_register: 0,
            fail_connect: 0,
        }
    }

    /// What happens to the `nth` completion of this direction of the channel with this number.
    pub fn completion(&self, channel: u64, direction: Direction, nth: u64) -> Verdict {
        let draw = |what: u64| self.draw([channel, direction as u64 * 16 + what, nth]);
        let hits = |what: u64, one_in: u64| one_in > 0 && draw(what).is_multiple_of(one_in);
        let nanoseconds = self.delay.as_nanos() as u64;
        let delay = match nanoseconds > 0 && hits(0, self.delay_one_in) {
            true => Duration::from_nanos(draw(1) % nanoseconds + 1),
            false => Duration::ZERO,
        };
        Verdict { delay, behind: hits(2, self.reorder_one_in) }
    }

    /// A number for this decision, by the seed and the place alone.
    fn draw(&self, place: [u64; 3]) -> u64 {
        place.into_iter().fold(self.seed, |state, part| fastrand::Rng::with_seed(state ^ part).u64(..))
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let behind = if self.behind { "behind another" } else { "" };
        match self.delay.is_zero() {
            true => f.write_str(behind),
            false if self.behind => write!(f, "{behind}, delay {:?}", self.delay),
            false => write!(f, "delay {:?}", self.delay),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(params: &[(&str, &str)]) -> Result<Plan, Failure> {
        let params = params.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        Plan::parse(&Config { ia_name: "x".into(), params })
    }

    #[test]
    fn decisions_depend_on_seed_and_place_alone() {
        let of = |seed: &str| {
            plan(&[("seed", seed), ("delay_us", "100"), ("reorder_one_in", "4")]).expect("valid")
        };
        let all = |plan: Plan| -> Vec<Verdict> {
            let places = (1..4).flat_map(|channel| (1..100).map(move |nth| (channel, nth)));
            places
                .flat_map(|(channel, nth)| {
                    [Direction::Send, Direction::Recv].map(|way| plan.completion(channel, way, nth))
                })
                .collect()
        };
        let (first, second) = (all(of("7")), all(of("7")));
        assert_eq!(first, second);
        assert_ne!(first, all(of("8")));
        assert!(first.iter().all(|verdict| verdict.delay <= Duration::from_micros(100)));
        let behind = first.iter().filter(|verdict| verdict.behind).count();
        assert!((80..220).contains(&behind), "{behind} of {}", first.len());
        let long = first.iter().filter(|verdict| verdict.delay > Duration::from_micros(50)).count();
        assert!((200..400).contains(&long), "{long}");
    }

    #[test]
    fn mistakes_are_named() {
        let fault = |params: &[(&str, &str)]| plan(params).expect_err("a mistake").message;
        assert!(fault(&[("delay", "1")]).contains("unknown parameter \"delay\""));
        assert!(fault(&[("delay_us", "x")]).contains("delay_us = \"x\""));
        assert!(fault(&[("delay_us", "2000000")]).contains("more than 1000000"));
        assert!(fault(&[("delay_us", "0")]).contains("no fault is asked for"));
    }

    #[test]
    fn without_a_fault_of_its_own_the_layer_is_mild() {
        let mild = plan(&[("seed", "3")]).expect("valid");
        assert_eq!(
            mild,
            plan(&[("seed", "3"), ("delay_us", "300"), ("reorder_one_in", "4")]).expect("valid")
        );
        assert_eq!(plan(&[]).expect("valid").reorder_one_in, 4);
        assert_eq!(plan(&[("fail_register", "2")]).expect("valid").delay, Duration::ZERO);
    }
}
