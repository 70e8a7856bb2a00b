//! Clients that write during the walk, one for each keyspace. They record what was acknowledged, and who was
//! refused for too long.

use super::expected_rows::{Change, ExpectedRows};
use super::keys::Space;
use super::outages::{Outages, Place};
use super::stage::{SERVERS, WalkCluster};
use crate::random::Random;
use crate::workload::route::Router;
use crate::{Error, Result};
use postgres::Client;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The pause between two writes of one client.
const PACE: Duration = Duration::from_millis(4);
/// The number of ids of rows.
const IDS: usize = 40;

type Books = Mutex<BTreeMap<usize, ExpectedRows>>;

/// What the walk and its writers share.
pub struct Shared {
    books: Books,
    /// The lock is held for reading while something is written.
    gate: RwLock<()>,
    stop: AtomicBool,
    /// Routes from before this number must be requested again.
    pub epoch: AtomicU64,
    pub acknowledged: AtomicU64,
    pub refusals: Mutex<BTreeMap<String, u64>>,
    problems: Mutex<Vec<String>>,
    outages: Arc<Outages>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Prevents writes while the returned guard lives.
    pub fn quiet(&self) -> RwLockWriteGuard<'_, ()> {
        self.gate.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn books(&self) -> MutexGuard<'_, BTreeMap<usize, ExpectedRows>> {
        lock(&self.books)
    }

    /// Returns the first problem, if there is one.
    pub fn problem(&self) -> Option<String> {
        lock(&self.problems).first().cloned()
    }
}

pub struct Writers {
    pub shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    pub fn start(stage: &WalkCluster, outages: Arc<Outages>, seed: u64) -> Writers {
        let written = stage.keys.iter().enumerate().filter(|(_, key)| key.is_written);
        let shared = Arc::new(Shared {
            books: Mutex::new(written.map(|(index, _)| (index, ExpectedRows::default())).collect()),
            gate: RwLock::new(()),
            stop: AtomicBool::new(false),
            epoch: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            refusals: Mutex::default(),
            problems: Mutex::default(),
            outages,
        });
        let threads = Space::ALL
            .into_iter()
            .map(|space| {
                let mut writer = Writer::new(stage, space, shared.clone(), seed);
                std::thread::spawn(move || writer.run())
            })
            .collect();
        Writers { shared, threads }
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Writer {
    space: Space,
    /// The key's position in the router's list, and in the cluster's.
    keys: Vec<(usize, usize)>,
    names: Vec<String>,
    router: Router,
    random: Random,
    shared: Arc<Shared>,
    epoch: u64,
    turn: u64,
}

/// Isolation levels of the writers' transactions, each as often as it is listed. Above READ COMMITTED a
/// writer has one snapshot, and gets 40001 if a split has changed something since.
const LEVELS: [&str; 4] = ["READ COMMITTED", "READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// How a transaction ended.
enum Outcome {
    Committed,
    /// The transaction has certainly changed nothing. Another attempt may succeed.
    Refused(Error),
    /// The answer to its COMMIT was lost.
    Unknown,
}

/// An operation: its statements with the number of rows that each must change, and the rows afterwards.
struct Op {
    statements: Vec<(String, u64)>,
    changes: Vec<Change>,
}

impl Writer {
    fn new(stage: &WalkCluster, space: Space, shared: Arc<Shared>, seed: u64) -> Writer {
        let written: Vec<usize> =
            stage.keys_of(space).filter(|index| stage.keys[*index].is_written).collect();
        let names: Vec<String> = written.iter().map(|index| stage.keys[*index].text.clone()).collect();
        let settings = vec!["SET statement_timeout = '20s'".into()];
        let router =
            Router::new(stage.cluster.client_config(), space.name(), Arc::new(names.clone()), settings);
        let random = Random::new(seed ^ (space as u64 + 1));
        let keys = written.into_iter().enumerate().collect();
        Writer { space, keys, names, router, random, shared, epoch: 0, turn: 0 }
    }

    fn run(&mut self) {
        while !self.shared.stop.load(Ordering::Relaxed) {
            if let Err(error) = self.write() {
                lock(&self.shared.problems).push(error.to_string());
                return;
            }
            std::thread::sleep(PACE);
        }
    }

    /// Runs one operation, and repeats it until a shard accepts it.
    fn write(&mut self) -> Result<()> {
        let (tenant, key) = *self.random.one_of(&self.keys.clone());
        let mut op = None;
        let mut refused_since = None;
        loop {
            if self.shared.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let shared = self.shared.clone();
            let gate = shared.gate.read().unwrap_or_else(PoisonError::into_inner);
            if shared.books().get(&key).is_none_or(ExpectedRows::is_in_doubt) {
                return Ok(()); // until the next comparison nobody knows what is there
            }
            self.follow_epoch();
            let op = op.get_or_insert_with(|| self.plan(tenant, key));
            let began = Instant::now();
            let outcome = self.attempt(tenant, &op.statements);
            match outcome {
                Outcome::Committed => {
                    if let Some(book) = shared.books().get_mut(&key) {
                        book.acknowledged(&op.changes);
                    }
                    shared.acknowledged.fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                Outcome::Unknown => {
                    if let Some(book) = shared.books().get_mut(&key) {
                        book.in_doubt(std::mem::take(&mut op.changes));
                    }
                    self.router.forget_session(tenant);
                    return Ok(());
                }
                Outcome::Refused(error) => {
                    let since = *refused_since.get_or_insert(began);
                    let what = format!("a client's {:?} of \"{}\"", op.statements, self.names[tenant]);
                    self.judge(tenant, &error, since).map_err(|e| e.context(&what))?;
                }
            }
            drop(gate);
            std::thread::sleep(PACE);
        }
    }

    /// Asks for all routes again before a redirect ends.
    fn follow_epoch(&mut self) {
        let now = self.shared.epoch.load(Ordering::Relaxed);
        if now != self.epoch && (0..self.names.len()).all(|tenant| self.router.refresh(tenant).is_ok()) {
            self.epoch = now;
        }
    }

    /// Judges an error. If it is not worth another attempt, or has lasted too long, the walk has found a problem.
    fn judge(&mut self, tenant: usize, error: &Error, since: Instant) -> Result<()> {
        let state = error.sqlstate().unwrap_or("none").to_owned();
        *lock(&self.shared.refusals).entry(state.clone()).or_default() += 1;
        let is_lost = state == "none" || state.starts_with("57P") || state.starts_with("08");
        if !is_lost && !["SM001", "SM002", "40001"].contains(&state.as_str()) && error.sqlstate().is_some() {
            return Err(error.clone());
        }
        if is_lost {
            self.router.forget_session(tenant);
        }
        let _ = self.router.refresh(tenant);
        let of_servers = (0..SERVERS).flat_map(|server| [Place::Server(server), Place::Link(server)]);
        let places: Vec<Place> = of_servers.chain([Place::Master]).collect();
        if self.shared.outages.is_too_long(&places, since) {
            return Err(error.clone().context(&format!("refused for {:?}", since.elapsed())));
        }
        Ok(())
    }

    fn plan(&mut self, tenant: usize, key: usize) -> Op {
        self.turn += 1;
        let ([parent, child], column) = (self.space.tables(), self.space.column());
        let name = &self.names[tenant];
        let (id, other) = (self.random.below(IDS) as i32, self.random.below(IDS) as i32);
        let books = self.shared.books();
        let rows = &books[&key].rows;
        let value = format!("turn {}", self.turn);
        let row = |id: i32| format!("{column} = '{name}' AND id = {id}");
        if !rows.contains_key(&id) {
            let insert = |table: &str| (format!("INSERT INTO {table} VALUES ('{name}', {id}, '{value}')"), 1);
            return Op { statements: vec![insert(parent), insert(child)], changes: vec![(id, Some(value))] };
        }
        match self.random.below(6) {
            0 => {
                let delete = format!("DELETE FROM {parent} WHERE {}", row(id));
                Op { statements: vec![(delete, 1)], changes: vec![(id, None)] }
            }
            1 if !rows.contains_key(&other) => {
                let renumber = format!("UPDATE {parent} SET id = {other} WHERE {}", row(id));
                let changes = vec![(id, None), (other, rows.get(&id).cloned())];
                Op { statements: vec![(renumber, 1)], changes }
            }
            _ => {
                let set = |table: &str| (format!("UPDATE {table} SET val = '{value}' WHERE {}", row(id)), 1);
                Op { statements: vec![set(parent), set(child)], changes: vec![(id, Some(value))] }
            }
        }
    }

    fn attempt(&mut self, tenant: usize, statements: &[(String, u64)]) -> Outcome {
        let level = self.random.one_of(&LEVELS);
        let session = match self.router.session(tenant) {
            Ok(session) => session,
            Err(error) => return Outcome::Refused(error),
        };
        let client = &mut session.client;
        if let Err(error) = execute(client, level, statements) {
            let _ = client.batch_execute("ROLLBACK");
            return Outcome::Refused(error);
        }
        match client.batch_execute("COMMIT").map_err(Error::from) {
            Ok(()) => Outcome::Committed,
            Err(error) if error.sqlstate().is_some_and(|s| !s.starts_with("57P")) => Outcome::Refused(error),
            Err(_) => Outcome::Unknown,
        }
    }
}

/// Runs the transaction up to its COMMIT. A statement that finds no row has met an old shard.
fn execute(client: &mut Client, level: &str, statements: &[(String, u64)]) -> Result<()> {
    client.batch_execute(&format!("BEGIN ISOLATION LEVEL {level}"))?;
    for (statement, expected) in statements {
        let changed = client.execute(statement.as_str(), &[])?;
        if changed != *expected {
            return Err(format!("{statement}: {changed} rows").into());
        }
    }
    Ok(())
}
