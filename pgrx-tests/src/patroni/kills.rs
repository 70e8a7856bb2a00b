//! Kills leaders: at random moments, and while a worker is held at the worst points of a split.

use super::TTL;
use super::site::{MASTER, NAMES, Site};
use crate::cluster::DATABASE;
use crate::random::Random;
use crate::{Result, wait};
use std::fmt;
use std::time::{Duration, Instant, SystemTime};

/// A worker that has not reached the point by then is no longer waited for.
const POINT_LIMIT: Duration = Duration::from_secs(12);
/// If a pair does not have both servers by then, others are killed instead.
const SOON: Duration = Duration::from_secs(3);
const PACE: Duration = Duration::from_millis(100);
const FORGET: &str = "ALTER SYSTEM RESET shardmaster.fault";

/// The points at which a worker is held while leaders are killed. Those at which clients wait are there more
/// than once.
const POINTS: &[&str] = &[
    "install_guarded",
    "reverse_captured",
    "step_durable",
    "step_committed",
    "cutover_disabled",
    "cutover_locked",
    "cutover_fenced",
    "cutover_fenced",
    "cutover_applied",
    "cutover_applied",
    "cutover_decided",
    "cutover_decided",
    "cutover_opened",
    "cutover_opened",
    "cutover_moved",
    "reverse_guarded",
    "reverse_left",
    "finish_begin",
    "finish_batch",
    "finish_rows",
    "finish_entered",
    "finish_left",
    "rollback_rows",
];

/// A leader is frozen only if SHARDMASTER_HA_FREEZE asks for it. Patroni 3.0.2 with etcd 3 overwrites the new
/// leader's name with its own, without a condition, if it continues between its look at etcd and its update.
/// The commits that only the new leader has acknowledged are then lost, unless `synchronous_mode_strict` is
/// on, and no standby is ever named again. A watchdog prevents this.
fn hows() -> &'static [KillMethod] {
    const KILLS: &[KillMethod] = &[
        KillMethod::Postgres,
        KillMethod::Postgres,
        KillMethod::Node,
        KillMethod::NodeShortly,
        KillMethod::Patroni,
    ];
    const FREEZES: &[KillMethod] = &[
        KillMethod::Postgres,
        KillMethod::Node,
        KillMethod::Patroni,
        KillMethod::Frozen,
        KillMethod::Frozen,
    ];
    if std::env::var_os("SHARDMASTER_HA_FREEZE").is_some() { FREEZES } else { KILLS }
}

/// The leaders that are killed together. A split has one source and one target, in turns.
const VICTIMS: &[&[usize]] = &[&[MASTER], &[1], &[2], &[MASTER, 1], &[MASTER, 2], &[1, 2]];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KillMethod {
    /// PostgreSQL alone: Patroni releases the leader's key at once.
    Postgres,
    /// Patroni and PostgreSQL: the key expires.
    Node,
    /// Patroni and PostgreSQL, which are back before the key has expired, so the node leads again.
    NodeShortly,
    /// Patroni alone: its server continues, as another leader beside the new one.
    Patroni,
    /// All processes stop, and continue when the other node leads.
    Frozen,
}

impl KillMethod {
    pub const ALL: [KillMethod; 5] = [
        KillMethod::Postgres,
        KillMethod::Node,
        KillMethod::NodeShortly,
        KillMethod::Patroni,
        KillMethod::Frozen,
    ];

    /// The time after which the node is brought back, or `None` if Patroni does it.
    pub fn back_after(self) -> Option<Duration> {
        match self {
            KillMethod::Postgres => None,
            KillMethod::NodeShortly => Some(Duration::from_millis(500)),
            KillMethod::Node | KillMethod::Patroni | KillMethod::Frozen => Some(Duration::from_secs(TTL + 2)),
        }
    }
}

impl fmt::Display for KillMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KillMethod::Postgres => "postgres",
            KillMethod::Node => "node",
            KillMethod::NodeShortly => "node, shortly",
            KillMethod::Patroni => "patroni alone",
            KillMethod::Frozen => "node, frozen",
        })
    }
}

/// A leader that was killed.
#[derive(Clone, Debug)]
pub struct Kill {
    pub at: Instant,
    pub pair: usize,
    pub how: KillMethod,
    /// Where the split's worker was held, or `None` if it was not held.
    pub point: Option<&'static str>,
}

/// Returns the time of day in the format of logs.
pub fn clock() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = now.as_secs() % 86_400;
    format!("{:02}:{:02}:{:02}.{:03}", seconds / 3600, seconds / 60 % 60, seconds % 60, now.subsec_millis())
}

pub struct Kills<'a> {
    site: &'a Site,
    random: Random,
    /// Nodes that are to be brought back.
    down: Vec<(Instant, usize, usize)>,
    done: Vec<Kill>,
}

impl Kills<'_> {
    pub fn new(site: &Site, seed: u64) -> Kills<'_> {
        Kills { site, random: Random::new(seed), down: Vec::new(), done: Vec::new() }
    }

    /// Kills every few seconds until the time is over, and then brings all nodes back.
    pub fn run(mut self, time: Duration) -> Result<Vec<Kill>> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            let victims = *self.random.one_of(VICTIMS);
            let how = *self.random.one_of(hows());
            let at_point = self.random.percent(60);
            let point = *self.random.one_of(POINTS);
            let pause = Duration::from_millis(300 + self.random.below(3_000) as u64);
            let Some(leaders) = self.await_leaders(victims)? else { continue };
            let point = if at_point && self.hold(point)? { Some(point) } else { None };
            self.strike(&leaders, how, point)?;
            self.rest(pause)?;
        }
        self.bring_back(None)?;
        Ok(self.done)
    }

    /// Waits until each victim has its standby, because a leader without one shows nothing about failovers.
    /// Returns `None` if that takes too long.
    fn await_leaders(&mut self, victims: &[usize]) -> Result<Option<Vec<(usize, usize)>>> {
        let until = Instant::now() + SOON;
        loop {
            self.bring_back(Some(Instant::now()))?;
            let leader =
                |pair: &usize| Some((*pair, self.site.pairs[*pair].protected_leader(self.site.protection)?));
            let leaders: Option<Vec<_>> = victims.iter().map(leader).collect();
            if leaders.is_some() || Instant::now() > until {
                return Ok(leaders);
            }
            std::thread::sleep(PACE);
        }
    }

    fn strike(
        &mut self,
        leaders: &[(usize, usize)],
        how: KillMethod,
        point: Option<&'static str>,
    ) -> Result<()> {
        for (pair, number) in leaders.iter().copied() {
            let at = Instant::now();
            let mut node = self.site.pairs[pair].node(number);
            match how {
                KillMethod::Postgres => node.kill_postgres()?,
                KillMethod::Node | KillMethod::NodeShortly => node.kill()?,
                KillMethod::Patroni => node.kill_patroni(),
                KillMethod::Frozen => node.freeze()?,
            }
            let back = how.back_after();
            self.down.extend(back.map(|after| (at + after, pair, number)));
            let place = point.map_or(String::new(), |point| format!(" at {point}"));
            println!("{} kill {}{number}: {how}{place}", clock(), NAMES[pair]);
            self.done.push(Kill { at, pair, how, point });
        }
        if point.is_some() {
            self.release();
        }
        Ok(())
    }

    fn rest(&mut self, pause: Duration) -> Result<()> {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            self.bring_back(Some(Instant::now()))?;
            std::thread::sleep(PACE);
        }
        Ok(())
    }

    /// Brings back the nodes whose time has come, or all nodes if `now` is `None`.
    fn bring_back(&mut self, now: Option<Instant>) -> Result<()> {
        let is_due = |at: &Instant| now.is_none_or(|now| *at <= now);
        for (_, pair, node) in self.down.extract_if(.., |(at, ..)| is_due(at)) {
            self.site.pairs[pair].node(node).bring_back()?;
        }
        Ok(())
    }

    /// Holds a split's worker at a point. Returns whether one was held in time.
    fn hold(&self, point: &str) -> Result<bool> {
        // The master may be away or frozen just now. Then nothing is held.
        let pair = &self.site.pairs[MASTER];
        let Some(Ok(mut master)) = pair.leader().map(|n| pair.node(n).superuser(DATABASE)) else {
            return Ok(false);
        };
        let set = format!("ALTER SYSTEM SET shardmaster.fault = '{point}=hold'");
        let held = "SELECT EXISTS (SELECT 1 FROM shardmaster.split_plan
                     WHERE shardmaster.split_waits_for(id) LIKE '%' || $1 || '%')";
        let mut hold = || -> Result<()> {
            master.batch_execute(&set)?;
            master.batch_execute("SELECT pg_reload_conf()")?;
            wait::until("a worker to be held", POINT_LIMIT, || {
                Ok(master.query_one(held, &[&point])?.get::<_, bool>(0).then_some(()))
            })?;
            // The worker waits until its server reads the file again. A new leader must not find this setting.
            Ok(master.batch_execute(FORGET)?)
        };
        let is_held = hold().is_ok();
        if !is_held {
            self.release();
        }
        Ok(is_held)
    }

    /// Lets the worker continue, if its server is still there.
    fn release(&self) {
        for n in 0..2 {
            let node = self.site.pairs[MASTER].node(n);
            if node.is_frozen() {
                continue;
            }
            let release = |mut client: postgres::Client| {
                client
                    .batch_execute(FORGET)
                    .and_then(|()| client.batch_execute("SELECT pg_reload_conf()"))
                    .is_ok()
            };
            let _ = node.superuser(DATABASE).is_ok_and(release);
        }
    }
}
