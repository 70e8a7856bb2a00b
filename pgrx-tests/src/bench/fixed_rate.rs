//! How long writes take at a fixed rate: before a copy, during it, and in the half minute after it.

use super::Size;
use super::rig::{LIMIT, Rig};
use super::stats::{Goal, Measure, at};
use crate::Result;
use crate::random::Random;
use postgres::NoTls;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const SESSIONS: u64 = 4;
/// Writes a second, of all sessions together.
const RATE: u64 = 1_000;

/// A write: when it was due, and how long after that it was done.
type TimedWrite = (Duration, Duration);

pub fn pace(size: Size) -> Result<Vec<Measure>> {
    let rig = Rig::new(size.rows(3_000_000), 100)?;
    let limits = [(0.5, 1.5), (0.99, 3.0)];
    let of = |when: &str| {
        limits.map(|(part, limit)| {
            let name = format!("p{:.0} at {RATE} writes a second, {when}", part * 100.0);
            Measure::new(name, "ms", Goal::RatioAtMost(limit))
        })
    };
    let (mut beside, mut behind) = (of("beside a copy"), of("in the half minute behind it"));
    for _ in 0..size.pairs(3) {
        rig.settle()?;
        let pacer = Pacer::start(&rig);
        let rest = Duration::from_secs(size.seconds(15));
        std::thread::sleep(rest); // the other writes are compared with these
        let split = rig.plan(50)?;
        split.call("start_dual_write")?;
        split.wait("dual_write", LIMIT)?;
        let copy = pacer.now();
        split.call("run_backfill")?;
        split.wait("tailing", LIMIT)?;
        let copied = pacer.now();
        std::thread::sleep(Duration::from_secs(size.seconds(30))); // the writes after the copy
        let end = pacer.now();
        let done = pacer.stop()?;
        let before = times(&done, rest / 3, rest);
        for (measures, from, to) in [(&mut beside, copy, copied), (&mut behind, copied, end)] {
            let now = times(&done, from, to);
            for (measure, (part, _)) in measures.iter_mut().zip(limits) {
                measure.pair(at(&before, part), at(&now, part));
            }
        }
        rig.take_back(&split)?;
    }
    Ok(beside.into_iter().chain(behind).collect())
}

/// Returns the times of the writes that were due between two moments, in milliseconds and sorted.
fn times(done: &[TimedWrite], from: Duration, to: Duration) -> Vec<f64> {
    let within = done.iter().filter(|(due, _)| *due >= from && *due < to);
    let mut times: Vec<f64> = within.map(|(_, took)| took.as_secs_f64() * 1e3).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// Sessions that write when a write is due, whether the one before was late or not.
struct Pacer {
    began: Instant,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Result<Vec<TimedWrite>>>>,
}

impl Pacer {
    fn start(rig: &Rig) -> Pacer {
        let (began, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let threads = (0..SESSIONS).map(|session| {
            let (config, rows, stop) = (rig.client_config(), rig.rows as usize, stop.clone());
            std::thread::spawn(move || {
                let mut client = config.connect(NoTls)?;
                let update = client.prepare("UPDATE items SET v = v + 1 WHERE id = $1")?;
                let mut random = Random::new(session);
                let each = Duration::from_secs(SESSIONS) / u32::try_from(RATE)?;
                let (mut due, mut done) = (each.mul_f64(session as f64 / SESSIONS as f64), Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(due.saturating_sub(began.elapsed())); // the pace itself
                    client.execute(&update, &[&(random.below(rows) as i64)])?;
                    done.push((due, began.elapsed() - due));
                    due += each;
                }
                Ok(done)
            })
        });
        let threads = threads.collect();
        Pacer { began, stop, threads }
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn stop(mut self) -> Result<Vec<TimedWrite>> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for thread in self.threads.drain(..) {
            all.extend(thread.join().map_err(|_| "a session of the load panicked")??);
        }
        Ok(all)
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
