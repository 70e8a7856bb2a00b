//! At every named point: the worker fails, ends, is ended or killed, and each of the
//! servers stops. The list of points is the server's own.

use shardmaster_tests::matrix::{Fault, Matrix, Place, What};
use std::io::Write;
use std::time::Instant;

/// Every point with one kind of fault; all that fail are reported together.
fn every_point(fault: Fault) {
    points_of(What::Tenant, fault, (0, 1));
}

/// Some of the points, and the others by another kind of fault that leaves the same behind, or by
/// one of a tenant, of which the others differ in few places. All of them with SHARDMASTER_SOAK.
fn some_points(what: What, fault: Fault, (remainder, of): (usize, usize)) {
    let all = std::env::var_os("SHARDMASTER_SOAK").is_some();
    points_of(what, fault, if all { (0, 1) } else { (remainder, of) });
}

fn points_of(what: What, fault: Fault, (remainder, of): (usize, usize)) {
    let began = Instant::now();
    let mut matrix = Matrix::new(what).unwrap();
    let mut failures = Vec::new();
    let all = matrix.injections().unwrap().into_iter().enumerate();
    let injections: Vec<_> = all.filter(|(n, _)| n % of == remainder).map(|(_, one)| one).collect();
    for injection in &injections {
        if let Err(error) = matrix.cell(injection, fault) {
            failures.push(error.to_string());
            // What is left of a failed split would spoil the cells after it.
            matrix = Matrix::new(what).unwrap();
        }
    }
    // Not println!, which only tests that fail are heard with.
    let _ = writeln!(
        std::io::stderr(),
        "{what:?}, {fault:?} at {} points: {:.0} s",
        injections.len(),
        began.elapsed().as_secs_f64()
    );
    assert!(failures.is_empty(), "{} points failed:\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn the_worker_fails() {
    some_points(What::Tenant, Fault::Fault("error"), (1, 3));
}

#[test]
fn the_worker_ends() {
    some_points(What::Tenant, Fault::Fault("exit"), (0, 3));
}

#[test]
fn the_worker_is_terminated() {
    some_points(What::Tenant, Fault::Terminate, (2, 3));
}

#[test]
fn the_worker_is_killed() {
    every_point(Fault::Fault("kill"));
}

#[test]
fn the_source_stops() {
    some_points(What::Tenant, Fault::Restart(Place::Source), (0, 3));
}

#[test]
fn the_target_stops() {
    some_points(What::Tenant, Fault::Restart(Place::Target), (1, 3));
}

#[test]
fn the_master_stops() {
    some_points(What::Tenant, Fault::Restart(Place::Master), (2, 3));
}

#[test]
fn the_worker_is_killed_that_moves_a_bucket() {
    some_points(What::Bucket, Fault::Fault("kill"), (0, 6));
}

#[test]
fn the_worker_is_killed_that_moves_a_range() {
    some_points(What::Range, Fault::Fault("kill"), (3, 6));
}

#[test]
fn the_worker_is_killed_that_brings_a_range_back() {
    some_points(What::ReturningRange, Fault::Fault("kill"), (1, 4));
}
