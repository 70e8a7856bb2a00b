//! At every injection point the worker fails, ends, is terminated or killed, and each of the servers stops.
//! The server provides the list of points.

use shardmaster_tests::env::is_long_run;
use shardmaster_tests::matrix::{Fault, Injection, Matrix, Place, SplitScope};
use shardmaster_tests::records;
use std::io::Write;
use std::time::Instant;

/// The number of points at which one split meets faults. With SHARDMASTER_SOAK each point has a split of its
/// own, with every kind of fault.
const POINTS_OF_A_SPLIT: usize = 8;

/// Tries every point with one kind of fault, and reports all failures together.
fn every_point(fault: Fault) {
    some_points(SplitScope::Tenant, fault, (0, 1));
}

/// Tries some of the points. Each is tried with a kill, and some with each other kind of fault. Some are also
/// tried with ranges that come back. Buckets and ranges differ from tenants in few places.
fn some_points(what: SplitScope, fault: Fault, (remainder, of): (usize, usize)) {
    let soak = is_long_run();
    let began = Instant::now();
    let mut matrix = Matrix::new(what).unwrap();
    let mut failures = Vec::new();
    let all = matrix.injections().unwrap().into_iter().enumerate();
    let injections: Vec<_> = all.filter(|(n, _)| soak || n % of == remainder).map(|(_, one)| one).collect();
    let cells = shared_out(&injections, if soak { 1 } else { POINTS_OF_A_SPLIT });
    for cell in &cells {
        match matrix.cell(cell, fault) {
            Ok(()) => {
                cell.iter().for_each(|at| records::keep("fault", &[("point", &at.point), ("kind", &fault)]));
            }
            Err(error) => {
                failures.push(error.to_string());
                // The remains of a failed split would disturb the cells after it.
                matrix = Matrix::new(what).unwrap();
            }
        }
    }
    // This does not use println!, whose output is shown only if the test fails.
    let _ = writeln!(
        std::io::stderr(),
        "{what:?}, {fault:?} at {} points of {} splits: {:.0} s",
        injections.len(),
        cells.len(),
        began.elapsed().as_secs_f64()
    );
    assert!(failures.is_empty(), "{} splits failed:\n{}", failures.len(), failures.join("\n\n"));
}

/// Distributes faults to splits, about `points` to each. Neighbours go to different splits, and no split
/// meets a point twice, during the copy and after it.
fn shared_out(injections: &[Injection], points: usize) -> Vec<Vec<Injection>> {
    let mut splits = vec![Vec::new(); injections.len().div_ceil(points)];
    for (n, one) in injections.iter().enumerate() {
        let has = |split: &Vec<Injection>| split.iter().any(|other| other.point == one.point);
        let first = n % splits.len();
        let next = (first + 1) % splits.len();
        let free = if has(&splits[first]) { next } else { first };
        splits[free].push(one.clone());
    }
    splits
}

#[test]
fn the_worker_fails() {
    some_points(SplitScope::Tenant, Fault::Fault("error"), (1, 18));
}

#[test]
#[ignore = "make test-all: ends without a kill; make test has the_worker_is_killed"]
fn the_worker_ends() {
    some_points(SplitScope::Tenant, Fault::Fault("exit"), (0, 6));
}

#[test]
#[ignore = "make test-all: a termination; make test has the_worker_is_killed"]
fn the_worker_is_terminated() {
    some_points(SplitScope::Tenant, Fault::Terminate, (2, 6));
}

#[test]
fn the_worker_is_killed() {
    every_point(Fault::Fault("kill"));
}

#[test]
fn the_source_stops() {
    some_points(SplitScope::Tenant, Fault::Restart(Place::Source), (3, 18));
}

#[test]
fn the_target_stops() {
    some_points(SplitScope::Tenant, Fault::Restart(Place::Target), (4, 18));
}

#[test]
fn the_master_stops() {
    some_points(SplitScope::Tenant, Fault::Restart(Place::Master), (5, 18));
}

#[test]
#[ignore = "make test-all: buckets; make test has the_worker_is_killed"]
fn the_worker_is_killed_that_moves_a_bucket() {
    some_points(SplitScope::Bucket, Fault::Fault("kill"), (0, 6));
}

#[test]
#[ignore = "make test-all: a range that leaves; make test has the_worker_is_killed_that_brings_a_range_back"]
fn the_worker_is_killed_that_moves_a_range() {
    some_points(SplitScope::Range, Fault::Fault("kill"), (3, 6));
}

#[test]
fn the_worker_is_killed_that_brings_a_range_back() {
    some_points(SplitScope::ReturningRange, Fault::Fault("kill"), (0, 6));
}
