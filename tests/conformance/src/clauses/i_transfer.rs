//! x
use super::prelude::*;
clauses! {}
