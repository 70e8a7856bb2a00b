//! Servers that are restored, replaced, gone, hung or full, links that are cut, silent or
//! slow, at each moment of a split.

use shardmaster_tests::disasters::{self, DISASTERS, Disaster, Link, MOMENTS, Place};
use std::io::Write;
use std::time::Instant;

/// All moments, or those that are named in the environment.
fn chosen(name: &str) -> bool {
    std::env::var("SHARDMASTER_MOMENTS").map_or(true, |only| only.split(',').any(|one| name.starts_with(one)))
}

fn cells(disaster: Disaster) {
    let mut failures = Vec::new();
    for moment in MOMENTS.iter().filter(|moment| chosen(moment.name)) {
        let began = Instant::now();
        let outcome = disasters::run(disaster, moment);
        let text = match outcome {
            Ok(shown) => format!("{:?}, longest wait {:?}, helped {:?}", shown.ended, shown.longest, shown.helped),
            Err(error) => {
                failures.push(format!("{disaster:?} at {}: {error}", moment.name));
                format!("FAILED: {error}")
            }
        };
        let _ = writeln!(
            std::io::stderr(),
            "{disaster:?} at {} ({:.0} s): {text}",
            moment.name,
            began.elapsed().as_secs_f64()
        );
    }
    assert!(failures.is_empty(), "{} cells failed:\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn the_source_hangs() {
    cells(Disaster::Hung(Place::Source));
}

#[test]
fn the_target_hangs() {
    cells(Disaster::Hung(Place::Target));
}

#[test]
fn the_master_hangs() {
    cells(Disaster::Hung(Place::Master));
}

#[test]
fn the_source_is_set_back_to_a_snapshot() {
    cells(Disaster::Disk(Place::Source));
}

#[test]
fn the_target_is_set_back_to_a_snapshot() {
    cells(Disaster::Disk(Place::Target));
}

#[test]
fn the_master_is_set_back_to_a_snapshot() {
    cells(Disaster::Disk(Place::Master));
}

#[test]
fn the_source_is_restored_from_a_dump() {
    cells(Disaster::Dump(Place::Source));
}

#[test]
fn the_target_is_restored_from_a_dump() {
    cells(Disaster::Dump(Place::Target));
}

#[test]
fn the_master_is_restored_from_a_dump() {
    cells(Disaster::Dump(Place::Master));
}

#[test]
fn the_source_fails_over() {
    cells(Disaster::Standby(Place::Source));
}

#[test]
fn the_target_fails_over() {
    cells(Disaster::Standby(Place::Target));
}

#[test]
fn the_master_fails_over() {
    cells(Disaster::Standby(Place::Master));
}

#[test]
fn the_source_is_gone() {
    cells(Disaster::Gone(Place::Source));
}

#[test]
fn the_target_is_gone() {
    cells(Disaster::Gone(Place::Target));
}

#[test]
fn the_master_is_gone() {
    cells(Disaster::Gone(Place::Master));
}

#[test]
fn the_source_has_a_full_disk() {
    cells(Disaster::Full(Place::Source));
}

#[test]
fn the_target_has_a_full_disk() {
    cells(Disaster::Full(Place::Target));
}

#[test]
fn the_master_has_a_full_disk() {
    cells(Disaster::Full(Place::Master));
}

#[test]
fn the_link_to_the_source_is_cut() {
    cells(Disaster::Cut(Link::Source));
}

#[test]
fn the_link_to_the_target_is_cut() {
    cells(Disaster::Cut(Link::Target));
}

#[test]
fn the_link_to_the_source_falls_silent() {
    cells(Disaster::Silent(Link::Source));
}

#[test]
fn the_link_to_the_target_falls_silent() {
    cells(Disaster::Silent(Link::Target));
}

#[test]
fn the_link_to_the_source_is_slow() {
    cells(Disaster::Slow(Link::Source));
}

#[test]
fn the_link_to_the_target_is_slow() {
    cells(Disaster::Slow(Link::Target));
}

#[test]
fn the_link_to_the_source_loses_a_connection() {
    cells(Disaster::OneLost(Link::Source));
}

#[test]
fn the_link_to_the_target_loses_a_connection() {
    cells(Disaster::OneLost(Link::Target));
}
