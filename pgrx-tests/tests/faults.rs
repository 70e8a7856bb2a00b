//! At every named point: the worker fails, ends, is ended or killed, and each of the
//! servers stops. The list of points is the server's own.

use shardmaster_tests::matrix::{Harm, Matrix, Place, What};
use std::io::Write;
use std::time::Instant;

/// Every point with one kind of harm; all that fail are reported together.
fn every_point(harm: Harm) {
    every_point_of(What::Tenant, harm);
}

fn every_point_of(what: What, harm: Harm) {
    let began = Instant::now();
    let mut matrix = Matrix::new(what).unwrap();
    let mut failures = Vec::new();
    let moments = matrix.moments().unwrap();
    for moment in &moments {
        if let Err(error) = matrix.cell(moment, harm) {
            failures.push(error.to_string());
            // What is left of a failed split would spoil the cells after it.
            matrix = Matrix::new(what).unwrap();
        }
    }
    // Not println!, which only tests that fail are heard with.
    let _ = writeln!(
        std::io::stderr(),
        "{what:?}, {harm:?} at {} points: {:.0} s",
        moments.len(),
        began.elapsed().as_secs_f64()
    );
    assert!(failures.is_empty(), "{} points failed:\n{}", failures.len(), failures.join("\n\n"));
}

#[test]
fn the_worker_fails() {
    every_point(Harm::Fault("error"));
}

#[test]
fn the_worker_ends() {
    every_point(Harm::Fault("exit"));
}

#[test]
fn the_worker_is_terminated() {
    every_point(Harm::Terminate);
}

#[test]
fn the_worker_is_killed() {
    every_point(Harm::Fault("kill"));
}

#[test]
fn the_source_stops() {
    every_point(Harm::Restart(Place::Source));
}

#[test]
fn the_target_stops() {
    every_point(Harm::Restart(Place::Target));
}

#[test]
fn the_master_stops() {
    every_point(Harm::Restart(Place::Master));
}

#[test]
fn the_worker_is_killed_that_moves_a_bucket() {
    every_point_of(What::Bucket, Harm::Fault("kill"));
}

#[test]
fn the_worker_is_killed_that_moves_a_range() {
    every_point_of(What::Range, Harm::Fault("kill"));
}

#[test]
fn the_worker_is_killed_that_brings_a_range_back() {
    every_point_of(What::ReturningRange, Harm::Fault("kill"));
}
