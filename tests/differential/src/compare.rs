//! Runs a program on several providers and compares what they did.

use std::collections::BTreeMap;

use crate::program::Program;
use crate::run::{Disagreement, Trace};
use crate::subject::{Patience, Subject};
use crate::watch::watched;

/// What runs that agree have shown.
#[derive(Clone, Debug, Default)]
pub struct Agreement {
    /// What the first subject did.
    pub first: Trace,
    /// By subject and feature, how many steps were refused because the provider says that it lacks the feature.
    pub refused: BTreeMap<String, u64>,
}

/// Runs `program` on every subject; the first difference, from the model or between subjects, is the error. Subjects that
/// lack different features are held against the model alone.
pub fn compare(
    program: &Program,
    subjects: &[Subject],
    patience: Patience,
) -> Result<Agreement, Disagreement> {
    let mut refused = BTreeMap::new();
    let mut traces: Vec<(&str, Trace)> = Vec::new();
    for subject in subjects {
        let trace = watched(program, subject, patience)?;
        for (feature, count) in &trace.refused {
            refused.insert(format!("{}: {feature}", subject.label), *count);
        }
        let alike = traces.iter().find(|(_, known)| known.lacks() == trace.lacks());
        if let Some((other, known)) = alike.filter(|(_, known)| *known != trace) {
            let what = format!("differs from {other}: {}", known.difference(&trace));
            return Err(Disagreement { label: subject.label.clone(), step: program.0.len(), what });
        }
        traces.push((&subject.label, trace));
    }
    let first = traces.into_iter().next().map(|(_, trace)| trace).unwrap_or_default();
    Ok(Agreement { first, refused })
}
