//! Benchmarks of the layers: the same 8-byte messages through the shared-memory provider called directly, through the
//! plugin tables, through the engine, and through the safe API.
//!
//! `cargo run --release -p dat-bench [-- --json] [-- --rounds N]` in nanoseconds; `cargo xtask instructions` in
//! instructions, over every provider; `cargo xtask bench` beside the programs of other projects.

mod compare;
mod cost;
mod layers;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((first, rest)) if first == "compare" => compare::run(rest),
        Some((first, rest)) if first == "serve" => compare::serve(rest),
        _ => cost::run(&args),
    }
}
