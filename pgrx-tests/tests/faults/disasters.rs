//! Servers that are restored, replaced, gone, hung or full, and links that are cut, silent or slow, at each
//! point of a split.

use shardmaster_tests::cluster::Cluster;
use shardmaster_tests::disasters::{
    self, CHOSEN, DISASTERS, Disaster, FAMILIES, INJECTIONS, Injection, Link, Place, SplitStage,
};
use shardmaster_tests::env::is_long_run;
use shardmaster_tests::records::{keep, milliseconds};
use std::io::Write;
use std::time::Instant;

/// Whether the cell is selected. In long runs all cells are, or those whose injection begins with one of the
/// words in SHARDMASTER_INJECTIONS.
fn is_wanted(disaster: Disaster, injection: &Injection) -> bool {
    if !is_long_run() {
        return CHOSEN.contains(&(disaster, injection.name));
    }
    std::env::var("SHARDMASTER_INJECTIONS")
        .map_or(true, |words| words.split(',').any(|word| injection.name.starts_with(word)))
}

/// Runs all cells of a disaster, and reports all failures together.
fn cells(disaster: Disaster) {
    if matches!(disaster, Disaster::Full(_)) && disasters::small_disk().is_none() {
        eprintln!("not run: only root can mount a small file system");
        return;
    }
    let mut failures = Vec::new();
    for injection in INJECTIONS.iter().filter(|injection| is_wanted(disaster, injection)) {
        let began = Instant::now();
        let text = match disasters::run(disaster, injection) {
            Ok(shown) => {
                let longest = milliseconds(shown.longest);
                let what = format!("{disaster:?}");
                keep("disaster", &[("what", &what), ("point", &injection.name), ("longest", &longest)]);
                format!("{shown}")
            }
            Err(error) => {
                failures.push(format!("{disaster:?} at {}: {error}", injection.name));
                format!("FAILED: {error}")
            }
        };
        let seconds = began.elapsed().as_secs_f64();
        // This does not use eprintln!, whose output is shown only if the test fails.
        let _ = writeln!(std::io::stderr(), "{disaster:?} at {} ({seconds:.0} s): {text}", injection.name);
    }
    assert!(failures.is_empty(), "{} cells failed:\n{}", failures.len(), failures.join("\n\n"));
}

/// The matrix must have a column for each of the server's points of cutover, recovery, finish and rollback,
/// and an end for each cell. Every run must try each row and each stage.
#[test]
fn nothing_is_left_out() {
    let cluster = Cluster::servers(0, &["fsync = off"]).unwrap();
    let rows = cluster.superuser().unwrap().query("SELECT point FROM shard_split_points()", &[]).unwrap();
    for row in rows {
        let point: &str = row.get(0);
        let belongs = FAMILIES.iter().any(|family| point.starts_with(family));
        assert!(
            !belongs || INJECTIONS.iter().any(|injection| injection.name == point),
            "{point} has no column"
        );
    }
    for disaster in DISASTERS {
        assert!(disasters::expected(disaster, SplitStage::Planned).is_some(), "{disaster:?} has no end");
        assert!(CHOSEN.iter().any(|(one, _)| *one == disaster), "{disaster:?} is not in every run");
    }
    let chosen = |stage: SplitStage| {
        let is_chosen = |one: &Injection| CHOSEN.iter().any(|(_, name)| *name == one.name);
        INJECTIONS.iter().any(|one| one.stage == stage && is_chosen(one))
    };
    for injection in INJECTIONS {
        assert!(chosen(injection.stage), "{:?} is not in every run", injection.stage);
    }
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
