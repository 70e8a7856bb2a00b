//! Leaders of source, target and master are killed every few seconds while splits run forward and back. No
//! acknowledged write is lost, doubled or misplaced, and no client waits longer than a failover and the
//! deadlines.
//!
//! `make ha` runs it, and needs Debian's packages `patroni` and `etcd-server`. SHARDMASTER_HA_SECONDS is the
//! time in which leaders are killed, and SHARDMASTER_SEED the seed. To check that the test notices
//! violations, set SHARDMASTER_HA_PARAMETERS="shardmaster.capture: 'off'", or SHARDMASTER_HA_PROTECTION=none,
//! with which a failover loses commits. With `synchronous` a Patroni that is restarted beside its running
//! server loses some as well (see `Protection`). SHARDMASTER_HA_LOGS names a directory for logs.

use shardmaster_tests::patroni::{Heartbeat, Kills, Operator, Protection, Site, Span, Summary};
use shardmaster_tests::random;
use shardmaster_tests::workload::{Mix, Options, Sharding, Workload};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SECONDS: u64 = 180;
const LIMIT: Duration = Duration::from_secs(180);

fn time() -> Duration {
    let given = std::env::var("SHARDMASTER_HA_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(given.unwrap_or(SECONDS))
}

fn protection() -> Protection {
    match std::env::var("SHARDMASTER_HA_PROTECTION").as_deref() {
        Ok("none") => Protection::None,
        Ok("synchronous") => Protection::Synchronous,
        _ => Protection::Strict,
    }
}

/// Returns more lines of YAML for the master's parameters, to check that a broken promise is noticed.
fn parameters() -> Vec<String> {
    let given = std::env::var("SHARDMASTER_HA_PARAMETERS").unwrap_or_default();
    given.split(';').filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn load(seed: u64) -> Options {
    Options {
        rows: 8_000,
        pause: Duration::from_millis(10),
        mix: Mix { special: 20, retenant: true },
        sharding: Sharding::Directory(vec![0, 0, 0, 1, 0, 0, 0, 1]),
        seed,
        ..Options::tenants(8)
    }
}

fn run(protection: Protection, seed: u64, time: Duration, parameters: &[String]) -> Summary {
    let site = Site::start(protection, parameters).unwrap();
    let heartbeat = Heartbeat::start(&site).unwrap();
    let options = load(seed);
    let moving: Vec<String> = options.moving_names().into_iter().map(str::to_owned).collect();
    let mut workload = Workload::prepare(&site.cluster, options).unwrap();
    site.wait_protected().unwrap();
    workload.start();
    workload.wait_for(200, LIMIT).unwrap();
    let goes_on = AtomicBool::new(true);
    let (kills, done) = std::thread::scope(|scope| {
        let names = moving.iter().map(String::as_str).collect();
        let operator = Operator::new(&site.cluster, names, seed);
        let operator = scope.spawn(|| operator.run(|| goes_on.load(Ordering::Relaxed)));
        let kills = Kills::new(&site, seed).run(time);
        goes_on.store(false, Ordering::Relaxed);
        (kills, operator.join())
    });
    let (kills, done) = (kills.unwrap(), done.unwrap());
    site.wait_protected().unwrap();
    workload.wait_for(200, LIMIT).unwrap();
    workload.stop().unwrap();
    let beats = heartbeat.stop(&site).unwrap();
    let report = workload.report(&site.cluster).unwrap();
    Summary {
        kills,
        beats,
        done,
        report,
        gaps: workload.gaps().into_iter().map(|(from, to)| Span { from, to }).collect(),
    }
}

#[test]
fn leaders_are_killed() {
    let seed = random::seed();
    let summary = run(protection(), seed, time(), &parameters());
    summary.keep();
    println!("{summary}");
    let broken = summary.broken();
    assert!(broken.is_empty(), "seed {seed}: {}", broken.join("\n"));
}
