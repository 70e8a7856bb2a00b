//! Cutovers whose worker or master ends, and masters that delay their workers: by locks of other sessions, or
//! by a synchronous standby that is away. Writers of the source wait no longer than the deadline, and no
//! cutover starts that nobody expects any more.

use shardmaster_tests::cluster::{CLIENT, Cluster, DATABASE};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{
    LIMIT, by_owner, client, cut_over_and_compare, plan, rows, source, state_of, to_pending,
};
use shardmaster_tests::relayed_cluster::{
    GRACE, RelayedCluster, TIMEOUT, age_request, given_up, interrupt, is_routed_back, terminate,
    writes_within,
};
use shardmaster_tests::server::{Server, Stop};
use shardmaster_tests::split::Split;
use shardmaster_tests::{standby, wait};

/// A cutover that was requested in the afternoon must not happen at night.
#[test]
fn a_cutover_that_was_interrupted_long_ago_is_not_begun_anew() {
    let mut stage = RelayedCluster::new(&[]);
    to_pending(&plan(&stage.cluster));
    for (point, restarts) in [
        ("cutover_fenced", false),
        ("cutover_begin", false),
        ("cutover_disabled", false),
        ("cutover_applied", true),
    ]
    .into_iter()
    .take(at_most(1))
    {
        stage.cluster.hold(point).unwrap();
        Split::of(&stage.cluster, 1).call("cutover").unwrap();
        Split::of(&stage.cluster, 1).wait_held(point, LIMIT).unwrap();
        age_request(&stage.cluster);
        if restarts {
            stage.cluster.master.restart(Stop::Immediate).unwrap()
        } else {
            terminate(&stage.cluster)
        }
        let split = Split::of(&stage.cluster, 1);
        writes_within(&mut client(&stage.cluster), TIMEOUT + GRACE);
        let error = split.wait("completed", LIMIT).unwrap_err().to_string();
        assert!(error.contains("it was interrupted, and requested longer ago"), "{point}: {error}");
        assert!(!error.contains("it had met"), "{point}: {error}");
        stage.cluster.fault("").unwrap();
        split.wait_settled(LIMIT).unwrap();
        assert!(is_routed_back(&stage.cluster), "{point}");
        assert_eq!(split.phase().unwrap(), "cutover_pending", "{point}");
    }
    cut_over_and_compare(&stage.cluster, &Split::of(&stage.cluster, 1));
}

/// The operator has to know the error that a cutover had before its worker ended.
#[test]
#[ignore = "make test-all: what is told of it; make test has a_cutover_that_was_interrupted_long_ago_is_not_begun_anew"]
fn an_interrupted_cutover_tells_what_it_had_met() {
    let stage = RelayedCluster::new(&[]);
    let cluster = &stage.cluster;
    let split = plan(cluster);
    to_pending(&split);
    cluster.fault("cutover_disabled=error,cutover_locked=hold").unwrap();
    split.call("cutover").unwrap();
    split.wait_held("cutover_locked", LIMIT).unwrap();
    age_request(cluster);
    terminate(cluster);
    cluster.fault("").unwrap();
    let error = split.wait("completed", LIMIT).unwrap_err().to_string();
    let told = "longer ago than shardmaster.cutover_timeout; it had met: fault injected at point \"cutover_disabled\"";
    assert!(error.contains(told), "{error}");
    cut_over_and_compare(cluster, &split);
}

/// A cutover whose worker has just ended continues. So does one that was paused for long.
#[test]
#[ignore = "make test-all: one that goes on; make test has faults::injection_points::the_worker_is_killed"]
fn a_cutover_that_was_interrupted_just_now_goes_on() {
    let stage = RelayedCluster::new(&["shardmaster.cutover_timeout = '60s'"]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    interrupt(&split, &stage.cluster, "cutover_begin", || {
        split.call("pause").unwrap();
        age_request(&stage.cluster);
        terminate(&stage.cluster);
    });
    wait::until("the split to rest", LIMIT, || {
        let activity: String = split.metric("activity")?;
        Ok((activity == "paused").then_some(()))
    })
    .unwrap();
    stage.cluster.hold("cutover_fenced").unwrap();
    split.call("resume").unwrap();
    split.wait_held("cutover_fenced", LIMIT).unwrap();
    terminate(&stage.cluster);
    stage.cluster.fault("").unwrap();
    split.wait("completed", LIMIT).unwrap();
}

/// A decision waits on the master no longer than its deadline, neither for the plan's row nor for the locks
/// of assignments and placement.
#[test]
fn an_open_transaction_on_the_master_keeps_no_writer_out() {
    let stage = RelayedCluster::new(&[]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let mut writer = client(&stage.cluster);
    let pause = format!("SELECT shard_split_pause({})", split.id);
    for held in [
        pause.as_str(),
        "SELECT shard_assign('newcomer', 'shard_a')",
        "LOCK TABLE shardmaster.split_plan IN SHARE ROW EXCLUSIVE MODE",
    ] {
        let mut other = stage.cluster.superuser().unwrap();
        interrupt(&split, &stage.cluster, "cutover_sequences", || {
            other.batch_execute(&format!("BEGIN; {held}")).unwrap();
        });
        writes_within(&mut writer, TIMEOUT + GRACE);
        other.batch_execute("ROLLBACK").unwrap();
        given_up(&split);
        assert!(is_routed_back(&stage.cluster), "{held}");
        assert_eq!(split.phase().unwrap(), "cutover_pending", "{held}");
    }
    cut_over_and_compare(&stage.cluster, &split);
}

/// A worker that takes a cutover over needs the plan's row, which another session has locked. Writers of the
/// source do not wait for that.
#[test]
#[ignore = "make test-all: a worker that ends; make test has an_open_transaction_on_the_master_keeps_no_writer_out"]
fn an_open_transaction_on_the_master_keeps_no_writer_out_whose_worker_has_ended() {
    let stage = RelayedCluster::new(&[]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let mut writer = client(&stage.cluster);
    for (point, ends) in [
        ("cutover_fenced", "worker"),
        ("cutover_sequences", "worker"),
        ("cutover_applied", "target"),
        ("cutover_applied", "source"),
    ] {
        let mut other = stage.cluster.superuser().unwrap();
        interrupt(&split, &stage.cluster, point, || {
            age_request(&stage.cluster);
            other.batch_execute(&format!("BEGIN; SELECT shard_split_pause({})", split.id)).unwrap();
            match ends {
                "target" => stage.target.cut(),
                "source" => stage.source.cut(),
                _ => terminate(&stage.cluster),
            }
            stage.source.mend();
        });
        writes_within(&mut writer, TIMEOUT + GRACE);
        let waits = || {
            let text: Option<String> = split.metric("waiting_for")?;
            Ok(text.is_some_and(|text| text.starts_with("a lock on the master: pid")).then_some(()))
        };
        wait::until("the worker to say what it waits for", LIMIT, waits).unwrap();
        stage.target.mend();
        other.batch_execute("ROLLBACK").unwrap();
        given_up(&split);
        split.wait_settled(LIMIT).unwrap();
        assert!(is_routed_back(&stage.cluster), "{point} {ends}");
    }
    cut_over_and_compare(&stage.cluster, &split);
}

/// The source is open again, and the master does not know it yet.
#[test]
fn a_worker_that_ends_while_it_gives_a_cutover_up_keeps_no_writer_out() {
    let stage = RelayedCluster::new(&[]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    for action in ["kill", "error", "exit", "hold"].into_iter().take(at_most(1)) {
        let mut other = stage.cluster.superuser().unwrap();
        stage.cluster.hold("cutover_sequences").unwrap();
        split.call("cutover").unwrap();
        split.wait_held("cutover_sequences", LIMIT).unwrap();
        other.batch_execute(&format!("BEGIN; SELECT shard_split_pause({})", split.id)).unwrap();
        stage.cluster.fault(&format!("cutover_reopened={action}")).unwrap();
        writes_within(&mut client(&stage.cluster), TIMEOUT + GRACE);
        if action == "hold" {
            split.wait_held("cutover_reopened", LIMIT).unwrap();
            terminate(&stage.cluster);
            stage.cluster.fault("").unwrap();
        }
        // A killed worker takes the sessions of its server down.
        let _ = other.batch_execute("ROLLBACK");
        wait::until("the cutover to be given up", LIMIT, || {
            // A master that was struck does not answer for a while.
            let error: Option<String> = split.metric("error_message").unwrap_or_default();
            Ok(error.is_some_and(|error| error.starts_with("cutover aborted")).then_some(()))
        })
        .unwrap();
        split.wait_settled(LIMIT).unwrap();
        assert!(is_routed_back(&stage.cluster), "{action}");
    }
    cut_over_and_compare(&stage.cluster, &split);
}

/// Starts a standby without which the master commits nothing.
fn synchronous_standby(cluster: &Cluster) -> Server {
    let standby = standby::start(&cluster.master).unwrap();
    cluster.set("synchronous_standby_names", "*").unwrap();
    let is_there = "SELECT EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync')";
    wait::until_true(&mut cluster.superuser().unwrap(), "the standby to follow", LIMIT, is_there).unwrap();
    standby
}

/// The commit that decides is on the master's disk, and waits for a standby that has stopped. The target
/// opens without the standby. When the standby is promoted, it gets the decision from the shards.
#[test]
fn a_standby_that_is_gone_at_the_decision_keeps_no_writer_out() {
    let mut stage = RelayedCluster::new(&[]);
    to_pending(&plan(&stage.cluster));
    let mut standby = synchronous_standby(&stage.cluster);
    interrupt(&Split::of(&stage.cluster, 1), &stage.cluster, "cutover_sequences", || {
        standby.stop(Stop::Immediate).unwrap();
    });
    let mut writer = stage.cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
    writes_within(&mut writer, TIMEOUT + GRACE);
    let split = Split::of(&stage.cluster, 1);
    split.wait("completed", LIMIT).unwrap();
    let told = "UPDATE items SET val = 'x' WHERE tenant = 'moves' AND id = 4";
    assert_eq!(state_of(&client(&stage.cluster).batch_execute(told).unwrap_err()), "SM001");
    let said = || Ok(split.events()?.contains("the synchronous standby of the master").then_some(()));
    wait::until("the operator to be told", LIMIT, said).unwrap();

    stage.cluster.master.stop(Stop::Kill).unwrap();
    standby.run().unwrap();
    let phase = "SELECT phase FROM shardmaster.split_plan WHERE reverse_of IS NULL";
    let phase: String = standby.superuser(DATABASE).unwrap().query_one(phase, &[]).unwrap().get(0);
    assert_eq!(phase, "cutover_pending", "it has lost nothing");
    standby.promote().unwrap();
    stage.cluster.master = standby;
    stage.cluster.fault("").unwrap();
    let split = Split::of(&stage.cluster, 1);
    split.wait("completed", LIMIT).unwrap();
    writes_within(&mut writer, GRACE);
    let route: String = split.superuser().unwrap().query_one("SELECT shard_of('moves')", &[]).unwrap().get(0);
    assert_eq!(route, "shard_b");
    let left = rows(&stage.cluster, 0).len();
    split.finish(LIMIT).unwrap();
    assert_eq!(rows(&stage.cluster, 1).len(), left);
}

/// If the standby is away or hangs before any client is kept out, the cutover does not begin.
#[test]
#[ignore = "make test-all: an earlier moment; make test has a_standby_that_is_gone_at_the_decision_keeps_no_writer_out"]
fn a_standby_that_is_away_gives_the_cutover_up() {
    let stage = RelayedCluster::new(&[]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let standby = synchronous_standby(&stage.cluster);
    let mut state = source(&stage.cluster);
    interrupt(&split, &stage.cluster, "cutover_begin", || standby.hang().unwrap());
    let error = split.wait("completed", TIMEOUT + GRACE * 2).unwrap_err().to_string();
    assert!(error.contains("cutover aborted, waiting for the synchronous standby of the master"), "{error}");
    wait::until("the route to lead back", GRACE, || Ok(is_routed_back(&stage.cluster).then_some(())))
        .unwrap();
    writes_within(&mut client(&stage.cluster), GRACE);
    let state: String = state.query_one("SELECT state FROM shardmaster_agent.side", &[]).unwrap().get(0);
    assert_eq!(state, "capture");
    standby.wake().unwrap();
    split.wait_settled(LIMIT).unwrap();
    cut_over_and_compare(&stage.cluster, &split);
}

/// The target's sequences were raised before the decision. After it nobody waits again for a transaction that
/// has drawn from one, whatever clients that stay have drawn from the source's sequences meanwhile.
#[test]
#[ignore = "make test-all: after the decision; make test has sequences::advance::numbers_that_are_drawn_behind_the_fence_are_not_given_out_again"]
fn behind_the_decision_no_sequence_is_waited_for() {
    let stage = RelayedCluster::new(&[]);
    for server in &stage.cluster.servers {
        let sequence = "ALTER TABLE items OWNER TO app_owner; SET ROLE app_owner; CREATE SEQUENCE codes OWNED BY items.code;
                        ALTER TABLE items ALTER code SET DEFAULT nextval('codes'); GRANT USAGE ON SEQUENCE codes TO PUBLIC";
        server.superuser(DATABASE).unwrap().batch_execute(sequence).unwrap();
    }
    let split = plan(&stage.cluster);
    to_pending(&split);
    stage.cluster.hold("cutover_decided").unwrap();
    split.call("cutover").unwrap();
    split.wait_held("cutover_decided", LIMIT).unwrap();
    source(&stage.cluster)
        .batch_execute("SELECT count(nextval('codes')) FROM generate_series(1, 5000)")
        .unwrap();
    let mut idle = stage.cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
    idle.batch_execute("BEGIN; SELECT nextval('codes')").unwrap();
    terminate(&stage.cluster);
    stage.cluster.fault("").unwrap();
    let mut writer = stage.cluster.servers[1].connect(DATABASE, CLIENT).unwrap();
    let write = "UPDATE items SET val = 'there' WHERE tenant = 'moves' AND id = 1";
    let written = || Ok(writer.batch_execute(write).is_ok().then_some(()));
    wait::until("the target to open", TIMEOUT + GRACE, written).unwrap();
    split.wait("completed", LIMIT).unwrap();
    assert!(split.events().unwrap().contains("sequences stay where the cutover had raised them"));
    idle.batch_execute("COMMIT").unwrap();
}

/// The target is asked while the source is checked. New objects of the source are looked for on both sides
/// once the target has answered.
#[test]
fn what_comes_to_the_source_behind_the_fence_is_looked_at() {
    let stage = RelayedCluster::new(&["shardmaster.cutover_timeout = '10s'"]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    interrupt(&split, &stage.cluster, "cutover_fenced", || {
        let new = "CREATE FUNCTION looks() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
                   CREATE EVENT TRIGGER looks ON ddl_command_end EXECUTE FUNCTION looks()";
        stage.cluster.servers[0].superuser(DATABASE).unwrap().batch_execute(new).unwrap();
    });
    split.wait("completed", LIMIT).unwrap();
    assert_eq!(rows(&stage.cluster, 0), rows(&stage.cluster, 1));
    split.finish(LIMIT).unwrap();
}

/// A session that ends during a check says nothing about the tables.
#[test]
#[ignore = "make test-all: a check; make test has faults::injection_points::the_source_stops"]
fn a_check_whose_sessions_end_is_made_again() {
    let stage = RelayedCluster::new(&[]);
    let cluster = &stage.cluster;
    for server in 0..2 {
        by_owner(
            cluster,
            server,
            "CREATE TABLE kinds (id int PRIMARY KEY); INSERT INTO kinds SELECT generate_series(1, 600);
             ALTER TABLE items ADD CONSTRAINT of_kind FOREIGN KEY (code) REFERENCES kinds, ADD CHECK (id > 0);
             CREATE FUNCTION checked(int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 > 0'",
        );
    }
    let split = plan(cluster);
    // Only the check locks the referenced table.
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    target.batch_execute("BEGIN; LOCK kinds").unwrap();
    split.call("start_dual_write").unwrap();
    let mut watcher = cluster.servers[1].superuser(DATABASE).unwrap();
    let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name LIKE 'shardmaster split % check' AND wait_event_type = 'Lock')";
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'shardmaster split % check'";
    for _ in 0..2 {
        wait::until_true(&mut watcher, "the check to wait", LIMIT, waits).unwrap();
        watcher.batch_execute(end).unwrap();
        wait::until("the split to try again", LIMIT, || {
            let text: Option<String> = split.metric("waiting_for")?;
            Ok(text.is_some_and(|text| text.contains("shard \"shard_b\"")).then_some(()))
        })
        .unwrap();
    }
    // A lock timeout says nothing about the tables either.
    wait::until("a check that gives up", LIMIT, || {
        let text: Option<String> = split.metric("waiting_for")?;
        Ok(text.is_some_and(|text| text.contains("lock on public.kinds of shard \"shard_b\"")).then_some(()))
    })
    .unwrap();
    assert_eq!(split.metric::<Option<String>>("error_message").unwrap(), None);
    target.batch_execute("COMMIT").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    split.call("run_backfill").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    cut_over_and_compare(cluster, &split);
}
