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
    Kit::new().pass("handles", &["loopback0"]);
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
    Kit::new().pass("foreign", &["loopback0"]);
}
