//! Makes a failing program short.

use crate::program::{Program, Step};

/// The shortest program found, not longer than `program`, for which `fails` holds: steps are left out, in halves,
/// quarters and so on down to one by one, then lists within steps, until nothing more can go.
pub fn shrink(program: &Program, mut fails: impl FnMut(&Program) -> bool) -> Program {
    let mut best = program.clone();
    loop {
        let before = size(&best);
        best = fewer_steps(best, &mut fails);
        best = shorter_lists(best, &mut fails);
        best = plainer_steps(best, &mut fails);
        if size(&best) == before {
            return best;
        }
    }
}

fn size(program: &Program) -> usize {
    program
        .0
        .iter()
        .map(|step| 1 + iov(step).map_or(0, <[_]>::len) + usize::from(plainer(step).is_some()))
        .sum()
}

fn fewer_steps(mut best: Program, fails: &mut impl FnMut(&Program) -> bool) -> Program {
    let mut chunk = best.0.len().div_ceil(2).max(1);
    loop {
        let mut start = 0;
        while start < best.0.len() {
            let mut steps = best.0.clone();
            steps.drain(start..(start + chunk).min(steps.len()));
            let candidate = Program(steps);
            if fails(&candidate) {
                best = candidate;
            } else {
                start += chunk;
            }
        }
        if chunk == 1 {
            return best;
        }
        chunk = chunk.div_ceil(2);
    }
}

fn shorter_lists(mut best: Program, fails: &mut impl FnMut(&Program) -> bool) -> Program {
    for index in 0..best.0.len() {
        while let Some(step) = without_last_segment(&best.0[index]) {
            let mut candidate = best.clone();
            candidate.0[index] = step;
            if !fails(&candidate) {
                break;
            }
            best = candidate;
        }
    }
    best
}

/// What a step has beside the call it is at heart is left off.
fn plainer_steps(mut best: Program, fails: &mut impl FnMut(&Program) -> bool) -> Program {
    for index in 0..best.0.len() {
        let Some(step) = plainer(&best.0[index]) else { continue };
        let mut candidate = best.clone();
        candidate.0[index] = step;
        if fails(&candidate) {
            best = candidate;
        }
    }
    best
}

fn plainer(step: &Step) -> Option<Step> {
    let mut step = step.clone();
    match &mut step {
        Step::Send { immediate, .. } | Step::Write { immediate, .. } => immediate.take().map(|_| step),
        Step::Bind { flags, .. } if *flags != 0 => {
            *flags = 0;
            Some(step)
        }
        Step::Create { shared, .. } => std::mem::take(shared).then_some(step),
        _ => None,
    }
}

fn iov(step: &Step) -> Option<&[crate::program::Segment]> {
    match step {
        Step::QueueRecv { iov, .. }
        | Step::Recv { iov, .. }
        | Step::Send { iov, .. }
        | Step::Write { iov, .. }
        | Step::Read { iov, .. } => Some(iov),
        _ => None,
    }
}

fn without_last_segment(step: &Step) -> Option<Step> {
    let mut step = step.clone();
    match &mut step {
        Step::QueueRecv { iov, .. }
        | Step::Recv { iov, .. }
        | Step::Send { iov, .. }
        | Step::Write { iov, .. }
        | Step::Read { iov, .. } => {
            iov.pop()?;
        }
        _ => return None,
    }
    Some(step)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;

    #[test]
    fn what_matters_stays_and_nothing_else() {
        let program = generate(7);
        let resets = |program: &Program| {
            program.0.iter().filter(|step| matches!(step, Step::Create { place: 1 | 2, .. })).count() >= 2
        };
        assert!(resets(&program));
        let short = shrink(&program, resets);
        assert_eq!(short.0.len(), 2, "{short}");
    }

    #[test]
    fn a_program_that_does_not_fail_is_left_alone() {
        let program = generate(8);
        assert_eq!(shrink(&program, |_| false), program);
    }
}
