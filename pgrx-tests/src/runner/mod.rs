//! Runs tests, each in a process of its own. The longest tests start first, and as many run at the same time
//! as keep the processors busy. The processor time of a test includes all processes that it waited for, such
//! as servers.

mod child;
mod entry;
mod machine;
mod results;

pub use child::Outcome;
pub use entry::{Entry, Times};
pub use results::Results;

use crate::Result;
use child::Running;
use machine::Processors;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The interval between two checks of the running tests.
const LOOK: Duration = Duration::from_millis(20);
/// At this load one more test would only make the others wait.
const BUSY: f64 = 0.96;
/// How many parts of one test run at the same time. Each has many servers, and waits most of its time.
const PARTS: usize = 2;

/// The options of the run.
pub struct Options {
    /// This many tests always run at the same time.
    pub least: usize,
    /// At most this many tests run, if processors are idle.
    pub most: usize,
    /// After this time a test is killed and has failed.
    pub limit: Duration,
    /// The directory for the output of running tests.
    pub scratch: PathBuf,
}

/// Runs all tests. `shown` is given each result as soon as the test has ended.
pub fn run(entries: Vec<Entry>, options: &Options, mut shown: impl FnMut(&Outcome)) -> Result<Results> {
    let began = Instant::now();
    let before = Processors::now();
    let mut waiting = VecDeque::from(entries);
    let mut running: Vec<Running> = Vec::new();
    let mut outcomes = Vec::new();
    let mut load = machine::Load::begin();
    while !waiting.is_empty() || !running.is_empty() {
        let has_room = running.len() < options.least || (running.len() < options.most && load.is_below(BUSY));
        let fits =
            |entry: &Entry| running.iter().filter(|other| other.is_beside(&entry.name)).count() < PARTS;
        let next = waiting.iter().position(fits);
        if let Some(entry) = next.filter(|_| has_room).and_then(|next| waiting.remove(next)) {
            running.push(Running::start(entry, &options.scratch)?);
            load = machine::Load::begin();
            continue;
        }
        std::thread::sleep(LOOK);
        let mut still = Vec::new();
        for one in running {
            match one.ended(options.limit)? {
                Ok(outcome) => {
                    shown(&outcome);
                    outcomes.push(outcome);
                }
                Err(one) => still.push(one),
            }
        }
        running = still;
    }
    Ok(Results { outcomes, idle: before.idle_since(), took: began.elapsed() })
}
