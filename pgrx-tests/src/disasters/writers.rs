//! The clients of the matrix: one that writes to the moving tenant, and one on each shard whose tenant stays.
//! Each is a real session that measures how long it waits for every answer, and records what was
//! acknowledged.

use super::addresses::{Addresses, MASTER};
use super::history::{History, Loss, State};
use crate::{Error, Result, wait};
use postgres::Client;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Rows of each tenant.
pub const ROWS: i32 = 24;
/// Waits longer than this are recorded.
const NOTABLE: Duration = Duration::from_millis(500);

/// The rows of a tenant, as numbers.
pub type Rows = BTreeMap<i32, i64>;

/// A time in which a client waited or was refused for notably long.
#[derive(Clone, Debug)]
pub struct Wait {
    pub server: usize,
    pub from: Instant,
    pub to: Instant,
    pub what: String,
}

impl Wait {
    pub fn length(&self) -> Duration {
        self.to.saturating_duration_since(self.from)
    }
}

/// What one client has seen.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub rows: BTreeMap<i32, History>,
    /// Single answers that were slow.
    pub waits: Vec<Wait>,
    /// Times in which it was refused or waited, and no write was served.
    pub gaps: Vec<Wait>,
    /// Refusals that do not say "retry".
    pub errors: Vec<Wait>,
}

impl Record {
    /// Returns the rows whose state cannot be explained.
    pub fn differences(&self, found: &Rows, losses: &[Loss]) -> Vec<String> {
        let mut all: Vec<String> = self
            .rows
            .iter()
            .filter(|(id, history)| !history.may_be(found.get(id).copied(), losses))
            .map(|(id, history)| format!("row {id} is {:?}, and was {}", found.get(id), history.tell()))
            .collect();
        all.extend(
            found.keys().filter(|id| !self.rows.contains_key(id)).map(|id| format!("row {id} is nobody's")),
        );
        all
    }
}

struct Shared {
    addresses: Arc<Addresses>,
    /// The pause between two writes, and between two checks for a question to the master.
    pace: Duration,
    stop: AtomicBool,
    /// The shard to which the moving tenant's route leads.
    route: AtomicUsize,
    /// Whether a refused client needs a new route.
    ask: AtomicBool,
    /// The last number of the moving tenant's client.
    number: AtomicI64,
    served: [AtomicU64; 3],
    records: [Mutex<Record>; 3],
    /// Slow answers of the master.
    asked: Mutex<Vec<Wait>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Names of the tenants: that of shard 0, that of shard 1, and the one that moves.
pub const TENANTS: [&str; 3] = ["stays a", "stays b", "moves"];
pub const MOVING: usize = 2;

pub struct Writers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    /// Writes each tenant's first rows and starts the clients.
    pub fn start(addresses: &Arc<Addresses>, pace: Duration) -> Result<Writers> {
        let shared = Arc::new(Shared {
            addresses: addresses.clone(),
            pace,
            stop: AtomicBool::new(false),
            route: AtomicUsize::new(0),
            ask: AtomicBool::new(false),
            number: AtomicI64::new(0),
            served: Default::default(),
            records: Default::default(),
            asked: Mutex::default(),
        });
        let mut threads = Vec::new();
        for number in [0, 1, MOVING] {
            let home = if number == MOVING { 0 } else { number };
            let mut client = addresses.connect(home)?;
            for id in 1..=ROWS {
                client.batch_execute(&format!(
                    "{}; {}",
                    put(TENANTS[number], id, 0)[0],
                    put(TENANTS[number], id, 0)[1]
                ))?;
                lock(&shared.records[number]).rows.insert(id, History::beginning(Some(0), home));
            }
            let shared = shared.clone();
            threads.push(std::thread::spawn(move || Writer::new(&shared, number).run()));
        }
        let guide = shared.clone();
        threads.push(std::thread::spawn(move || be_guide(&guide)));
        Ok(Writers { shared, threads })
    }

    /// Waits until each of these clients has been served `more` times.
    pub fn wait_for(&self, numbers: &[usize], more: u64, limit: Duration) -> Result<()> {
        let now = |number: &usize| self.shared.served[*number].load(Ordering::Relaxed);
        let goals: Vec<u64> = numbers.iter().map(|n| now(n) + more).collect();
        let outcome = wait::until("writes to be served", limit, || {
            Ok(numbers.iter().zip(&goals).all(|(n, goal)| now(n) >= *goal).then_some(()))
        });
        let last = |n: &usize| lock(&self.shared.records[*n]).errors.last().map(|e| e.what.clone());
        outcome.map_err(|e| {
            e.context(&format!(
                "clients {numbers:?}, last errors {:?}",
                numbers.iter().map(last).collect::<Vec<_>>()
            ))
        })
    }

    /// Returns the last number that the moving tenant's client has used.
    pub fn number(&self) -> i64 {
        self.shared.number.load(Ordering::Relaxed)
    }

    /// Ends the clients. Returns their records, and the master's slow answers.
    pub fn stop(mut self) -> Result<([Record; 3], Vec<Wait>)> {
        self.end()?;
        let asked = lock(&self.shared.asked).clone();
        Ok(([0, 1, 2].map(|number| lock(&self.shared.records[number]).clone()), asked))
    }

    fn end(&mut self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().map_err(|_| Error::from("a client panicked"))?;
        }
        Ok(())
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        // The threads of a failed cell may wait for a server that never answers.
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// Asks the master for the moving tenant's route whenever a client needs it. A master that hangs blocks this
/// thread, and no client.
fn be_guide(shared: &Shared) {
    let mut session: Option<Client> = None;
    while !shared.stop.load(Ordering::Relaxed) {
        if !shared.ask.swap(false, Ordering::Relaxed) {
            std::thread::sleep(shared.pace);
            continue;
        }
        let from = Instant::now();
        let answer = ask(shared, &mut session);
        let to = Instant::now();
        if to - from > NOTABLE {
            let what = format!("the route: {answer:?}");
            lock(&shared.asked).push(Wait { server: MASTER, from, to, what });
        }
        match answer.as_deref() {
            Ok("shard_a") => shared.route.store(0, Ordering::Relaxed),
            Ok("shard_b") => shared.route.store(1, Ordering::Relaxed),
            _ => session = None,
        }
    }
}

fn ask(shared: &Shared, session: &mut Option<Client>) -> Result<String> {
    let client = match session {
        Some(client) => client,
        empty => empty.insert(shared.addresses.connect(MASTER)?),
    };
    Ok(client.query_one("SELECT shard_key FROM shard_route($1)", &[&TENANTS[MOVING]])?.get(0))
}

/// How a transaction ended.
enum Outcome {
    Committed,
    Refused(Error),
    /// The transaction did not find its row.
    NoRow,
    /// The answer to its COMMIT was lost.
    Unknown,
}

struct Writer<'a> {
    shared: &'a Shared,
    number: usize,
    sessions: [Option<Client>; 2],
    next: i64,
    last_served: Instant,
    last_refusal: String,
}

impl Writer<'_> {
    fn new(shared: &Shared, number: usize) -> Writer<'_> {
        let (sessions, last_served) = ([None, None], Instant::now());
        Writer { shared, number, sessions, next: 0, last_served, last_refusal: String::new() }
    }

    fn run(mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            self.next += 1;
            if self.number == MOVING {
                self.shared.number.store(self.next, Ordering::Relaxed);
            }
            let id = (self.next % i64::from(ROWS)) as i32 + 1;
            let record = || lock(&self.shared.records[self.number]);
            let is_there = record().rows.get(&id).is_some_and(|history| history.last().is_some());
            // Some rows are deleted and inserted again.
            let state = if is_there && self.next % 5 == 3 { None } else { Some(self.next) };
            self.change(id, state);
            std::thread::sleep(self.shared.pace);
        }
    }

    /// Changes one row, and repeats the attempt until a server accepts it.
    fn change(&mut self, id: i32, state: State) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            let server =
                if self.number == MOVING { self.shared.route.load(Ordering::Relaxed) } else { self.number };
            let from = Instant::now();
            let outcome = self.attempt(server, id, state);
            let to = Instant::now();
            self.note(server, from, to, &outcome);
            match outcome {
                Outcome::Committed | Outcome::Unknown => {
                    let mut record = lock(&self.shared.records[self.number]);
                    let Some(history) = record.rows.get_mut(&id) else { return };
                    match outcome {
                        Outcome::Committed => history.acknowledged(state, server),
                        _ => history.unknown(state),
                    }
                    return;
                }
                Outcome::NoRow => {
                    // This is an old shard, or a server that has lost the row. The row is left alone.
                    self.shared.ask.store(true, Ordering::Relaxed);
                    return;
                }
                Outcome::Refused(_) => {
                    self.shared.ask.store(self.number == MOVING, Ordering::Relaxed);
                    std::thread::sleep(self.shared.pace * 2);
                }
            }
        }
    }

    fn note(&mut self, server: usize, from: Instant, to: Instant, outcome: &Outcome) {
        let mut record = lock(&self.shared.records[self.number]);
        let what = match outcome {
            Outcome::Committed => "served".to_owned(),
            Outcome::NoRow => "no row".to_owned(),
            Outcome::Unknown => "no answer".to_owned(),
            Outcome::Refused(error) => error.to_string(),
        };
        if to - from > NOTABLE {
            record.waits.push(Wait { server, from, to, what: what.clone() });
        }
        match outcome {
            Outcome::Committed => {
                if to - self.last_served > NOTABLE {
                    let what = self.last_refusal.clone();
                    record.gaps.push(Wait { server, from: self.last_served, to, what });
                }
                self.last_served = to;
                self.shared.served[self.number].fetch_add(1, Ordering::Relaxed);
            }
            Outcome::Refused(error) => {
                if self.number != MOVING || !says_retry(error) {
                    record.errors.push(Wait { server, from, to, what: what.clone() });
                }
                self.last_refusal = what;
            }
            Outcome::NoRow | Outcome::Unknown => self.last_refusal = what,
        }
    }

    fn attempt(&mut self, server: usize, id: i32, state: State) -> Outcome {
        let tenant = TENANTS[self.number];
        let client = match &mut self.sessions[server] {
            Some(client) => client,
            empty => match self.shared.addresses.connect(server) {
                Ok(client) => empty.insert(client),
                Err(error) => return Outcome::Refused(error),
            },
        };
        let outcome = transaction(client, tenant, id, state);
        let is_broken = match &outcome {
            Outcome::Refused(error) => {
                error.sqlstate().is_none_or(|s| s.starts_with("57P") || s.starts_with("08"))
            }
            Outcome::Unknown => true,
            Outcome::Committed | Outcome::NoRow => false,
        };
        if is_broken {
            self.sessions[server] = None;
        }
        outcome
    }
}

fn transaction(client: &mut Client, tenant: &str, id: i32, state: State) -> Outcome {
    let changed = match state {
        Some(number) => {
            let [item, note] = put(tenant, id, number);
            client.batch_execute(&format!("BEGIN; {item}; {note}")).map(|()| 1)
        }
        None => client.batch_execute("BEGIN").and_then(|()| {
            client.execute("DELETE FROM items WHERE tenant = $1 AND id = $2", &[&tenant, &id])
        }),
    };
    match changed {
        Ok(0) => {
            let _ = client.batch_execute("ROLLBACK");
            Outcome::NoRow
        }
        Ok(_) => match client.batch_execute("COMMIT").map_err(Error::from) {
            Ok(()) => Outcome::Committed,
            Err(error) if error.sqlstate().is_some_and(|s| !s.starts_with("57P")) => Outcome::Refused(error),
            Err(_) => Outcome::Unknown,
        },
        Err(error) => {
            let _ = client.batch_execute("ROLLBACK");
            Outcome::Refused(error.into())
        }
    }
}

/// Returns the statements that write the number to both tables in one transaction.
pub fn put(tenant: &str, id: i32, number: i64) -> [String; 2] {
    let value = format!("'{number} ' || repeat('x', 300)");
    [
        format!(
            "INSERT INTO items VALUES ('{tenant}', {id}, {value}) ON CONFLICT (tenant, id) DO UPDATE SET val = EXCLUDED.val"
        ),
        format!(
            "INSERT INTO notes VALUES ('{tenant}', {id}, {id}, {value}) ON CONFLICT (tenant, id) DO UPDATE SET val = EXCLUDED.val"
        ),
    ]
}

/// Whether the error is a broken connection, or one that a split asks its clients to retry.
fn says_retry(error: &Error) -> bool {
    error.sqlstate().is_none_or(|s| {
        s.starts_with("57P") || s.starts_with("08") || ["SM001", "SM002", "40001"].contains(&s)
    })
}
