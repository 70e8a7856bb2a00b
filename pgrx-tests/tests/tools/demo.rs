//! The demo proves that nothing is lost, and it would notice a loss.

use shardmaster_tests::env;
use std::process::{Command, Output};

/// Runs a small edition of the demo, and checks that it leaves nothing behind.
fn demo(arguments: &[&str]) -> Output {
    let small = ["--rows", "60000", "--seconds", "1"];
    let mut command = Command::new(env::program("demo").unwrap());
    command.args(small).args(arguments).stdout(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let own = format!("{}.", child.id());
    let output = child.wait_with_output().unwrap();
    for entry in std::fs::read_dir(env::run_dir().unwrap()).unwrap() {
        let name = entry.unwrap().file_name();
        assert!(!name.to_string_lossy().starts_with(&own), "the demo left {name:?}");
    }
    output
}

fn report(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns a number of the report by its label.
fn number(report: &str, label: &str) -> u64 {
    let line = report.lines().find(|line| line.starts_with(label)).expect(label);
    line[label.len()..].trim().parse().expect(label)
}

#[test]
fn nothing_is_lost_on_three_servers() {
    let output = demo(&[]);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(0), "{report}");
    for label in ["lost", "doubled", "misplaced"] {
        assert_eq!(number(&report, label), 0, "{report}");
    }
    assert!(number(&report, "rows moved") > 20_000, "{report}");
}

#[test]
#[ignore = "make test-all: shards in one database; make test has nothing_is_lost_on_three_servers"]
fn nothing_is_lost_between_namespaces() {
    let output = demo(&["--namespaces"]);
    assert_eq!(output.status.code(), Some(0), "{}", report(&output));
}

#[test]
#[ignore = "make test-all: a demo that has to fail; make test has tools::load::every_spoilt_row_is_found"]
fn without_capture_the_loss_is_found() {
    let output = demo(&["--no-capture"]);
    let report = report(&output);
    assert_eq!(output.status.code(), Some(1), "{report}");
    assert!(number(&report, "lost") > 0, "{report}");
}
