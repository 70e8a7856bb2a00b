//! What capture costs single-row updates while nothing is copied: by pgbench, and in processor time of the
//! server, which gives the same result on a busy machine.

use super::Size;
use super::rig::{LIMIT, Rig};
use super::stats::{Goal, Measure};
use crate::cluster::{CLIENT, DATABASE, NATIVE_CAPTURE};
use crate::{Result, env};
use postgres::{Client, NoTls};
use std::path::PathBuf;
use std::process::Command;

const TENANTS: i64 = 20_000;
const ROWS_OF_TENANT: i64 = 20;
const FEW: i64 = 10;
const MANY: i64 = 10_000;

/// A script of single-row updates of one kind of tenant.
pub struct Script {
    path: PathBuf,
}

impl Script {
    /// `tenant` is a pgbench expression: the number of one of `tenants` tenants.
    pub fn new(name: &str, tenant: &str, tenants: i64) -> Result<Script> {
        let path = env::run_dir()?.join(format!("{name}.pgbench"));
        let text = format!(
            "\\set tenant {tenant}\n\\set id :tenant + {tenants} * random(0, {ROWS_OF_TENANT} - 1)\n\
             UPDATE items SET v = v + 1 WHERE id = :id;\n"
        );
        std::fs::write(&path, text)?;
        Ok(Script { path })
    }

    /// Returns transactions a second on the source.
    pub fn run(&self, rig: &Rig, seconds: u64) -> Result<f64> {
        self.run_on(rig, 0, seconds)
    }

    /// Returns transactions a second on one of the servers.
    pub fn run_on(&self, rig: &Rig, server: usize, seconds: u64) -> Result<f64> {
        self.run_with(rig, server, seconds, "on")
    }

    /// `commit` is a value of synchronous_commit.
    fn run_with(&self, rig: &Rig, server: usize, seconds: u64, commit: &str) -> Result<f64> {
        let server = &rig.cluster.servers[server];
        let mut pgbench = Command::new(env::bindir()?.join("pgbench"));
        pgbench.env("PGOPTIONS", format!("-c synchronous_commit={commit}"));
        pgbench.args(["-n", "-M", "prepared", "-c", "4", "-j", "2", "-p", "5432", "-U", CLIENT]);
        pgbench.arg("-h").arg(server.socket_dir()).arg("-T").arg(seconds.to_string());
        let output = env::run(pgbench.arg("-f").arg(&self.path).arg(DATABASE))?;
        let line = output.lines().find_map(|line| line.strip_prefix("tps = "));
        let value = line.and_then(|rest| rest.split(' ').next()).and_then(|text| text.parse().ok());
        Ok(value.ok_or_else(|| format!("no tps in the output of pgbench:\n{output}"))?)
    }
}

/// Single-row updates by one session, each a transaction.
pub struct Session {
    client: Client,
    pid: i32,
    first: String,
    run: String,
    updates: u32,
}

impl Session {
    /// `tenant` is an SQL expression, `commit` a value of synchronous_commit.
    pub fn new(rig: &Rig, tenant: &str, tenants: i64, commit: &str, size: Size) -> Result<Session> {
        let updates = match size {
            Size::Full => 20_000,
            Size::Quick => 2_000,
        };
        let mut client = rig.client_config().connect(NoTls)?;
        client.batch_execute(&format!("SET synchronous_commit = {commit}"))?;
        let pid = client.query_one("SELECT pg_backend_pid()", &[])?.get(0);
        let run = |updates: u32| {
            format!(
                "DO $$ DECLARE wanted bigint; BEGIN FOR n IN 1 .. {updates} LOOP
                     wanted := {tenant} + {tenants} * floor(random() * {ROWS_OF_TENANT})::bigint;
                     UPDATE items SET v = v + 1 WHERE id = wanted;
                     COMMIT;
                 END LOOP; END $$"
            )
        };
        Ok(Session { client, pid, first: run(updates / 20), run: run(updates), updates })
    }

    /// Returns the server's processor time for each update, in microseconds.
    pub fn cost(&mut self) -> Result<f64> {
        // A session's first call of a new function has a cost of its own, which is left out.
        self.client.batch_execute(&self.first)?;
        let before = self.processor_time()?;
        self.client.batch_execute(&self.run)?;
        Ok((self.processor_time()? - before) / f64::from(self.updates))
    }

    fn processor_time(&self) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/schedstat", self.pid))?;
        let nanoseconds: u64 = text.split(' ').next().ok_or("an empty schedstat")?.parse()?;
        Ok(nanoseconds as f64 / 1e3)
    }
}

/// Values of synchronous_commit: fast commits and slow ones.
const COMMITS: [&str; 2] = ["off", "on"];

/// For one kind of tenant: the transactions of four clients, and what each costs the server.
struct Measured {
    script: Script,
    sessions: [Session; 2],
    rates: [Measure; 2],
    costs: [Measure; 2],
}

impl Measured {
    /// `tenant` is an expression, for pgbench and for SQL.
    fn new(
        rig: &Rig,
        name: &str,
        [of_pgbench, of_sql]: [&str; 2],
        size: Size,
        (ratio, most): (f64, f64),
    ) -> Result<Measured> {
        let session = |commit| Session::new(rig, of_sql, TENANTS, commit, size);
        let cost =
            |commit: &str| Measure::new(format!("{name}, {commit} commits"), "µs", Goal::MoreByAtMost(most));
        let rate = |commit: &str| {
            Measure::new(format!("{name}, {commit} commits"), "tps", Goal::RatioAtLeast(ratio))
        };
        Ok(Measured {
            script: Script::new(&name.replace([' ', ','], "_"), of_pgbench, TENANTS)?,
            sessions: [session(COMMITS[0])?, session(COMMITS[1])?],
            rates: [rate("fast"), rate("slow")],
            costs: [cost("fast"), cost("slow")],
        })
    }

    fn run(&mut self, rig: &Rig, seconds: u64, is_ours: bool) -> Result<()> {
        let list = |measure: &mut Measure, value| {
            if is_ours { measure.ours.push(value) } else { measure.reference.push(value) }
        };
        for (commit, measure) in COMMITS.into_iter().zip(&mut self.rates) {
            list(measure, self.script.run_with(rig, 0, seconds, commit)?);
        }
        for (session, measure) in self.sessions.iter_mut().zip(&mut self.costs) {
            list(measure, session.cost()?);
        }
        Ok(())
    }

    fn measures(self) -> impl Iterator<Item = Measure> {
        self.rates.into_iter().chain(self.costs)
    }
}

/// One kind of tenant beside a split, captured in one way.
struct Case {
    measured: Measured,
    moving: i64,
    is_native: bool,
}

pub fn capture(size: Size) -> Result<Vec<Measure>> {
    let mut measures = of_tenants(size)?;
    measures.extend(of_buckets(size)?);
    Ok(measures)
}

/// The case with capture by PL/pgSQL, and with capture by the native function.
fn both_ways(
    rig: &Rig,
    name: &str,
    tenants: [&str; 2],
    size: Size,
    (moving, ratio): (i64, f64),
    most: [f64; 2],
) -> Result<Vec<Case>> {
    let case = |is_native: bool| {
        let name = if is_native { format!("{name}, native") } else { name.to_owned() };
        let most = most[usize::from(is_native)];
        let measured = Measured::new(rig, &name, tenants, size, (ratio, most))?;
        Ok(Case { measured, moving, is_native })
    };
    [false, true].into_iter().map(case).collect()
}

fn of_tenants(size: Size) -> Result<Vec<Measure>> {
    let rig = Rig::new(TENANTS * ROWS_OF_TENANT, TENANTS)?;
    // Even tenants move, the first ones first. Odd ones stay.
    let (stays, stays_sql) = (
        format!("2 * random(0, {TENANTS} / 2 - 1) + 1"),
        format!("2 * floor(random() * {TENANTS} / 2)::bigint + 1"),
    );
    let (moves, moves_sql) =
        (format!("2 * random(0, {FEW} - 1)"), format!("2 * floor(random() * {FEW})::bigint"));
    let (staying, moving) = ([stays.as_str(), stays_sql.as_str()], [moves.as_str(), moves_sql.as_str()]);
    let stays = |name: &str, count| both_ways(&rig, name, staying, size, (count, 0.97), [1.0, 0.5]);
    let mut cases = stays("staying tenants, 10 moving", FEW)?;
    cases.extend(stays("staying tenants, 10,000 moving", MANY)?);
    cases.extend(both_ways(&rig, "moving tenants, 10 moving", moving, size, (FEW, 0.8), [12.0, 3.0])?);
    run(&rig, cases, size)
}

/// Half of 1,024 buckets move.
fn of_buckets(size: Size) -> Result<Vec<Measure>> {
    let rig = Rig::of_buckets(TENANTS * ROWS_OF_TENANT, TENANTS, 1024)?;
    let stays = format!("2 * random(0, {TENANTS} / 2 - 1) + 1");
    let stays_sql = format!("2 * floor(random() * {TENANTS} / 2)::bigint + 1");
    let name = "staying tenants, 512 of 1,024 buckets moving";
    let cases = both_ways(&rig, name, [&stays, &stays_sql], size, (FEW, 0.97), [2.0, 0.5])?;
    run(&rig, cases, size)
}

fn run(rig: &Rig, mut cases: Vec<Case>, size: Size) -> Result<Vec<Measure>> {
    let seconds = size.seconds(4);
    for round in 0..size.pairs(10) {
        rig.source()?.batch_execute("VACUUM items")?;
        rig.settle()?;
        for case in &mut cases {
            // The rounds take turns in which of a pair runs first.
            for step in 0..2 {
                if (step + round) % 2 == 0 {
                    case.measured.run(rig, seconds, false)?;
                } else {
                    with_capture(rig, case.moving, case.is_native, || case.measured.run(rig, seconds, true))?;
                }
            }
        }
        println!("  round {}", round + 1);
    }
    Ok(cases.into_iter().flat_map(|case| case.measured.measures()).collect())
}

/// Runs `body` with the triggers of a split of `count` tenants, of which nothing is copied yet.
fn with_capture(rig: &Rig, count: i64, is_native: bool, body: impl FnOnce() -> Result<()>) -> Result<()> {
    rig.install([is_native, false])?;
    if is_native {
        rig.source()?.batch_execute(NATIVE_CAPTURE)?;
    }
    let split = rig.plan(count)?;
    split.call("start_dual_write")?;
    split.wait("dual_write", LIMIT)?;
    body()?;
    rig.take_back(&split)
}
