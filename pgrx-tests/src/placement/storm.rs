//! Sessions that reserve, confirm, cancel, renew, free and die at the same time, and the answers that they got.

use crate::cluster::{Cluster, DATABASE};
use crate::random::Random;
use crate::server::signal;
use crate::{Error, Result};
use postgres::{Client, Config};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub const KIND: &str = "vector";
const KEYS: usize = 400;
const TENANTS: usize = 8;
const STRATEGIES: [&str; 4] = ["fill_first", "fill_first", "spread", "consistent"];

/// An answer that a session got after its commit.
#[derive(Clone, Debug)]
pub enum Ack {
    Reserved(i64),
    Confirmed(i64, String),
    Cancelled(i64),
}

/// The answers that a session may get in READ COMMITTED, with one call per transaction: refusals, its own
/// timeout, and the end of its connection.
const EXPECTED: [&str; 9] = ["SM003", "SM004", "SM005", "55000", "57014", "57P01", "57P02", "57P03", "08006"];

/// The record of all sessions.
#[derive(Default)]
pub struct Storm {
    pub acks: Mutex<Vec<Ack>>,
    pub unexpected: Mutex<Vec<String>>,
    pub calls: AtomicU64,
    stop: AtomicBool,
}

struct Session<'a> {
    storm: &'a Storm,
    config: Config,
    random: Random,
    known: Vec<i64>,
}

impl Storm {
    /// Runs `count` sessions until the time is over. Every `kill_every`, SIGKILL of one of its processes
    /// restarts the server.
    pub fn run(&self, cluster: &Cluster, count: usize, seed: u64, time: Duration, kill_every: Duration) {
        let config = cluster.master.config(DATABASE, "postgres");
        std::thread::scope(|scope| {
            for number in 0..count {
                let config = config.clone();
                scope.spawn(move || {
                    let mut config = config;
                    config.application_name("storm");
                    let random = Random::new(seed.wrapping_add(number as u64 * 7919));
                    Session { storm: self, config, random, known: Vec::new() }.work();
                });
            }
            self.disturb(cluster, Random::new(!seed), time, kill_every);
            self.stop.store(true, Ordering::Relaxed);
        });
    }

    /// Ends sessions, drains shards, and kills.
    fn disturb(&self, cluster: &Cluster, mut random: Random, time: Duration, kill_every: Duration) {
        let began = Instant::now();
        let mut killed = began;
        while began.elapsed() < time {
            std::thread::sleep(Duration::from_millis(100)); // between two disturbances
            let Ok(mut client) = cluster.superuser() else { continue };
            let storm =
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'storm' ORDER BY random() LIMIT 1";
            let Ok(Some(row)) = client.query_opt(storm, &[]) else { continue };
            let pid: i32 = row.get(0);
            if killed.elapsed() > kill_every {
                killed = Instant::now();
                let _ = signal(pid.unsigned_abs(), libc::SIGKILL);
                continue;
            }
            let query = match random.below(4) {
                0 => format!("SELECT shard_set_status('v{}', 'draining')", random.below(4)),
                1 => format!("SELECT shard_set_status('v{}', 'active')", random.below(4)),
                _ => format!("SELECT pg_terminate_backend({pid})"),
            };
            if let Err(error) = client.batch_execute(&query) {
                self.judge(&error.into(), true);
            }
        }
    }

    /// Records an error that nobody should see.
    fn judge(&self, error: &Error, read_committed: bool) {
        let expected = match error.sqlstate() {
            // The connection is gone.
            None => true,
            Some("40001") => !read_committed,
            Some(state) => EXPECTED.contains(&state),
        };
        if !expected {
            self.unexpected.lock().unwrap_or_else(|e| e.into_inner()).push(error.to_string());
        }
    }

    fn acknowledge(&self, ack: Ack) {
        self.acks.lock().unwrap_or_else(|e| e.into_inner()).push(ack);
    }
}

impl Session<'_> {
    fn work(&mut self) {
        let mut client: Option<Client> = None;
        while !self.storm.stop.load(Ordering::Relaxed) {
            let mut connected = match client.take() {
                Some(connected) if !connected.is_closed() => connected,
                _ => match self.config.connect(postgres::NoTls) {
                    Ok(connected) => connected,
                    Err(_) => {
                        std::thread::sleep(Duration::from_millis(20)); // the server restarts
                        continue;
                    }
                },
            };
            self.storm.calls.fetch_add(1, Ordering::Relaxed);
            let read_committed = !self.random.percent(10);
            let patient = !self.random.percent(3);
            match self.turn(&mut connected, read_committed, patient) {
                Ok(true) => client = Some(connected),
                // The session closes the connection, whatever it was doing.
                Ok(false) => {}
                // A timeout that fires when an answer is complete is reported by the next call.
                Err(error) if !patient && error.sqlstate() == Some("25P02") => {}
                Err(error) => {
                    self.storm.judge(&error, read_committed);
                    // The timeout may hit this statement as well.
                    client = connected.batch_execute("ROLLBACK").is_ok().then_some(connected);
                }
            }
        }
    }

    /// Runs one transaction. False means that the connection is to be closed in the middle of it.
    fn turn(&mut self, client: &mut Client, read_committed: bool, patient: bool) -> Result<bool> {
        let level = if read_committed {
            "READ COMMITTED"
        } else {
            *self.random.one_of(&["REPEATABLE READ", "SERIALIZABLE"])
        };
        let timeout = if patient { "0" } else { "2ms" };
        client.batch_execute(&format!(
            "BEGIN ISOLATION LEVEL {level}; SET LOCAL statement_timeout = '{timeout}'"
        ))?;
        let ack = self.call(client)?;
        match self.random.below(100) {
            0..4 => client.batch_execute("ROLLBACK")?,
            4 => return Ok(false),
            _ => {
                client.batch_execute("COMMIT")?;
                if let Some(Ack::Reserved(id)) = ack {
                    self.known.push(id);
                }
                // A COMMIT after an error that was not reported rolls back.
                if let Some(ack) = ack
                    && patient
                {
                    self.storm.acknowledge(ack);
                }
            }
        }
        Ok(true)
    }

    fn call(&mut self, client: &mut Client) -> Result<Option<Ack>> {
        let key = self.random.below(KEYS);
        let logical_key = format!("key-{key}");
        let choice = self.random.below(100);
        if choice < 45 || self.known.is_empty() {
            let stranger = usize::from(self.random.percent(3));
            let tenant = format!("tenant-{}", (key + stranger) % TENANTS);
            let lease = *self.random.one_of(&[0.05, 0.5, 2.0, 60.0]);
            let strategy = *self.random.one_of(&STRATEGIES);
            let row = client.query_one(
                "SELECT reservation_id FROM shard_reserve_slot($1, $2, $3, make_interval(secs => $4), $5)",
                &[&KIND, &logical_key, &tenant, &lease, &strategy],
            )?;
            return Ok(Some(Ack::Reserved(row.get(0))));
        }
        let id = self.known.swap_remove(self.random.below(self.known.len()));
        match choice {
            45..70 => {
                let resource = format!("resource-{id}");
                client.execute("SELECT shard_confirm_slot($1, $2)", &[&id, &resource])?;
                Ok(Some(Ack::Confirmed(id, resource)))
            }
            70..80 => {
                client.execute("SELECT shard_cancel_slot($1)", &[&id])?;
                Ok(Some(Ack::Cancelled(id)))
            }
            80..88 => {
                client.execute("SELECT shard_renew_slot($1, '1 s')", &[&id])?;
                self.known.push(id);
                Ok(None)
            }
            88..98 => {
                client.execute("SELECT shard_free_slot($1, $2)", &[&KIND, &logical_key])?;
                Ok(None)
            }
            _ => {
                client.execute("SELECT shard_expire_leases()", &[])?;
                Ok(None)
            }
        }
    }
}

/// Returns the acknowledged answers that contradict the record of reservations.
pub fn broken_promises(client: &mut Client, acks: &[Ack]) -> Result<Vec<String>> {
    let mut broken = Vec::new();
    for ack in acks {
        let (id, allowed): (i64, &[&str]) = match ack {
            Ack::Reserved(id) => (*id, &["pending", "confirmed", "cancelled", "expired", "released"]),
            Ack::Confirmed(id, _) => (*id, &["confirmed", "released"]),
            // A reservation that has ended stays ended.
            Ack::Cancelled(id) => (*id, &["cancelled", "expired", "released"]),
        };
        let row = client.query_opt(
            "SELECT status, resource_id FROM shardmaster.shard_reservation WHERE id = $1",
            &[&id],
        )?;
        let Some(row) = row else {
            broken.push(format!("{ack:?}: there is no such reservation"));
            continue;
        };
        let (status, resource): (String, Option<String>) = (row.get(0), row.get(1));
        let same = !matches!(ack, Ack::Confirmed(_, wanted) if resource.as_ref() != Some(wanted));
        if !allowed.contains(&status.as_str()) || !same {
            broken.push(format!("{ack:?}: it is {status} with {resource:?}"));
        }
    }
    Ok(broken)
}
