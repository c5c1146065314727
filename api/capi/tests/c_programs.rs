//! C programs of our own over every provider that is here.

mod support;

use support::Kit;

const IAS: [&str; 2] = ["loopback0", "shm0"];

#[test]
fn transfers_and_ways_down() {
    let kit = Kit::new();
    IAS.iter().for_each(|ia| kit.pass("transfer", &[ia]));
}

#[test]
fn handles_are_never_believed() {
    let kit = Kit::new();
    kit.pass("handles", &["loopback0"]);
}

#[test]
fn an_object_without_a_handle_ends() {
    let kit = Kit::new();
    kit.pass("full", &["loopback0"]);
}

#[test]
fn wrong_handles_are_refused_by_every_function_in_every_place() {
    let kit = Kit::new();
    IAS.iter().for_each(|ia| kit.pass("hostile", &[ia]));
}

#[test]
fn of_two_threads_that_end_the_same_thing_one_does() {
    let kit = Kit::new();
    IAS.iter().for_each(|ia| kit.pass("races", &[ia]));
}

#[test]
fn a_child_made_by_fork_is_told_so() {
    let kit = Kit::new();
    IAS.iter().for_each(|ia| kit.pass("fork", &[ia]));
}

#[test]
fn closing_the_library_leaves_nothing_dangling() {
    let kit = Kit::new();
    IAS.iter().for_each(|ia| kit.pass("unload", &[ia]));
}

#[test]
fn the_table_of_every_handle_leads_here() {
    let kit = Kit::new();
    IAS.iter().for_each(|ia| kit.pass("table", &[ia]));
}

#[test]
fn habits_of_programs_in_the_field() {
    let kit = Kit::new();
    IAS.iter().for_each(|ia| kit.pass("habits", &[ia]));
}

#[test]
fn an_endpoint_as_an_mpi_library_makes_it() {
    let kit = Kit::new();
    IAS.iter().for_each(|ia| kit.pass("mpi_endpoint", &[ia]));
}

#[test]
fn connections_of_one_opening_are_reported_to_another_of_the_same_name() {
    let kit = Kit::new();
    IAS.iter().for_each(|ia| kit.pass("openings", &[ia]));
}

#[test]
fn several_threads_at_once() {
    let kit = Kit::new();
    IAS.iter().for_each(|ia| kit.pass("threads", &[ia]));
}

#[test]
fn notification_objects_and_shared_dispatchers() {
    let kit = Kit::new();
    IAS.iter().for_each(|ia| kit.pass("notify", &[ia]));
}

#[test]
fn extensions_windows_and_shared_queues() {
    let kit = Kit::new();
    IAS.iter().for_each(|ia| kit.pass("extensions", &[ia]));
}

#[test]
fn providers_the_application_brings_along() {
    let kit = Kit::new();
    kit.pass("foreign", &["loopback0"]);
}
