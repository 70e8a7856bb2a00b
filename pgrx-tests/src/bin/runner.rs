//! `runner PLAN TIMES`: runs the tests of the file PLAN (`Entry::list`), longest first by the file TIMES
//! (`Times::read`). It shows each test as it ends, then all failures and the longest tests.
//!
//! Tests that the file SHARDMASTER_PASSED names have passed before and are not run.

use shardmaster_tests::runner::{self, Entry, Options, Outcome, Times};
use shardmaster_tests::{Error, Result, env};
use std::collections::HashSet;
use std::fs;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("runner: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [plan, times] = arguments.as_slice() else { return Err(Error::from("usage: runner PLAN TIMES")) };
    let mut entries = Entry::list(&fs::read_to_string(plan)?)?;
    let before = take_out(&mut entries)?;
    Times::read(&fs::read_to_string(times)?).order(&mut entries);
    let mut results = runner::run(entries, &options()?, |outcome| {
        print!("{outcome}");
        let _ = std::io::stdout().flush();
    })?;
    if !before.is_empty() {
        println!("\n{} tests have passed in an earlier run of the same code", before.len());
    }
    results.outcomes.extend(before);
    print!("{results}");
    Ok(if results.failed().is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Takes out the tests that have passed before.
fn take_out(entries: &mut Vec<Entry>) -> Result<Vec<Outcome>> {
    let Some(passed) = std::env::var_os("SHARDMASTER_PASSED") else { return Ok(Vec::new()) };
    let text = fs::read_to_string(passed)?;
    let names: HashSet<&str> = text.lines().filter_map(|line| line.split('\t').next()).collect();
    let has_passed = entries.extract_if(.., |entry| names.contains(entry.name.as_str()));
    let outcome = |entry: Entry| Outcome {
        name: entry.name,
        is_ok: true,
        took: Duration::ZERO,
        used: Duration::ZERO,
        output: String::new(),
    };
    Ok(has_passed.map(outcome).collect())
}

fn options() -> Result<Options> {
    let number = |name: &str| -> Result<Option<usize>> {
        let Ok(text) = std::env::var(name) else { return Ok(None) };
        let number = text.parse().map_err(|_| Error::from(format!("{name} is no number: {text}")))?;
        Ok(Some(number))
    };
    let processors = std::thread::available_parallelism().map_or(2, usize::from);
    let threads = number("SHARDMASTER_TEST_THREADS")?.map(|threads| threads.max(1));
    // Most tests wait for servers most of the time. A long one keeps a processor busy, so more of them at
    // once would make others miss their deadlines.
    let busy = std::env::var_os("SHARDMASTER_SOAK").is_some();
    Ok(Options {
        least: threads.unwrap_or(if busy { processors } else { 3 * processors }),
        most: threads.unwrap_or(6 * processors),
        limit: Duration::from_secs(number("SHARDMASTER_TEST_TIMEOUT")?.unwrap_or(1800).try_into()?),
        scratch: env::run_dir()?,
    })
}
