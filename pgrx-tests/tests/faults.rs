//! At every named point: the worker fails, ends, is ended or killed, and each of the
//! servers stops. The list of points is the server's own.

use shardmaster_tests::matrix::{Fault, Matrix, Place, What};
use std::io::Write;
use std::time::Instant;

/// Every point with one kind of fault; all that fail are reported together.
fn every_point(fault: Fault) {
    points_of(What::Tenant, fault, None);
}

/// Every other point, the even or the odd ones: for two kinds of fault that leave the same
/// behind, and for what differs from a tenant in few places. All of them with SHARDMASTER_SOAK.
fn every_other_point(what: What, fault: Fault, remainder: usize) {
    points_of(what, fault, Some(remainder).filter(|_| std::env::var_os("SHARDMASTER_SOAK").is_none()));
}

fn points_of(what: What, fault: Fault, remainder: Option<usize>) {
    let began = Instant::now();
    let mut matrix = Matrix::new(what).unwrap();
    let mut failures = Vec::new();
    let mut injections = matrix.injections().unwrap();
    if let Some(remainder) = remainder {
        injections = injections
            .into_iter()
            .enumerate()
            .filter(|(n, _)| n % 2 == remainder)
            .map(|(_, one)| one)
            .collect();
    }
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
    every_point(Fault::Fault("error"));
}

#[test]
fn the_worker_ends() {
    every_other_point(What::Tenant, Fault::Fault("exit"), 0);
}

#[test]
fn the_worker_is_terminated() {
    every_other_point(What::Tenant, Fault::Terminate, 1);
}

#[test]
fn the_worker_is_killed() {
    every_point(Fault::Fault("kill"));
}

#[test]
fn the_source_stops() {
    every_other_point(What::Tenant, Fault::Restart(Place::Source), 0);
}

#[test]
fn the_target_stops() {
    every_other_point(What::Tenant, Fault::Restart(Place::Target), 1);
}

#[test]
fn the_master_stops() {
    every_point(Fault::Restart(Place::Master));
}

#[test]
fn the_worker_is_killed_that_moves_a_bucket() {
    every_other_point(What::Bucket, Fault::Fault("kill"), 0);
}

#[test]
fn the_worker_is_killed_that_moves_a_range() {
    every_other_point(What::Range, Fault::Fault("kill"), 1);
}

#[test]
fn the_worker_is_killed_that_brings_a_range_back() {
    points_of(What::ReturningRange, Fault::Fault("kill"), None);
}
