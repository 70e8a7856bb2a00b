//! The diagnosis of a split names each problem with its place and its repair, and nothing else. The next call
//! leads the split to its end.

use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::fixture::{LIMIT, by_superuser, cluster, finished, plan, rows, to_pending};
use shardmaster_tests::server::Stop;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::time::{Duration, Instant};

/// Returns for each problem its place, a description, and its repair.
fn diagnosis(split: &Split<'_>) -> Vec<String> {
    let query = "SELECT concat_ws(' | ', place, problem, repair) FROM shard_split_diagnose($1)";
    let rows = split.superuser().unwrap().query(query, &[&split.id]).unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

fn next(split: &Split<'_>) -> Option<String> {
    split.metric("next_call").unwrap()
}

/// The test makes each next call until there is none left.
#[test]
fn what_is_to_be_typed_leads_to_the_end() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    let mut typed = Vec::new();
    for reached in ["dual_write", "cutover_pending", "completed", "finished"] {
        assert_eq!(diagnosis(&split), [""; 0], "before {reached}");
        let words = next(&split).unwrap();
        split.superuser().unwrap().batch_execute(&words).unwrap();
        typed.push(words);
        split.wait(reached, LIMIT).unwrap();
    }
    assert_eq!(next(&split), None);
    assert_eq!(diagnosis(&split), [""; 0]);
    let calls = ["start_dual_write", "run_backfill", "cutover", "finish"];
    assert_eq!(typed, calls.map(|call| format!("SELECT shard_split_{call}({})", split.id)));
}

/// Returns a split that is paused, so it does not change meanwhile.
fn at_rest(cluster: &Cluster) -> Split<'_> {
    let split = plan(cluster);
    to_pending(&split);
    split.call("pause").unwrap();
    let rests = || Ok((split.metric::<String>("activity")? == "paused").then_some(()));
    wait::until("the split to rest", LIMIT, rests).unwrap();
    split
}

const ENABLE: &str = "ALTER TABLE items ENABLE TRIGGER ALL; DO $$ DECLARE t name; BEGIN
    FOR t IN SELECT tgname FROM pg_trigger WHERE tgrelid = 'items'::regclass AND tgname LIKE '00%' LOOP
        EXECUTE format('ALTER TABLE items ENABLE ALWAYS TRIGGER %I', t);
    END LOOP; END $$";

#[test]
fn what_is_wrong_on_a_shard_is_told_with_its_place() {
    let cluster = cluster(&[]);
    let split = at_rest(&cluster);
    assert_eq!(
        diagnosis(&split),
        [format!("master | it is paused | SELECT shard_split_resume({}).", split.id)]
    );
    assert_eq!(next(&split), Some(format!("SELECT shard_split_resume({})", split.id)));
    let disable = "ALTER TABLE items DISABLE TRIGGER ALL";
    for (server, wrong, right, told) in [
        (0, disable, ENABLE, "source shard \"shard_a\" | a trigger of the split on public.items is missing"),
        (1, disable, ENABLE, "target shard \"shard_b\" | a trigger of the split on public.items is missing"),
        (
            0,
            "UPDATE shardmaster_agent.side SET state = 'moved'",
            "UPDATE shardmaster_agent.side SET state = 'capture'",
            "source shard \"shard_a\" | it reports \"moved\", which is wrong in phase cutover_pending",
        ),
        (
            1,
            "UPDATE shardmaster_agent.side SET state = 'open'",
            "UPDATE shardmaster_agent.side SET state = 'closed'",
            "target shard \"shard_b\" | it reports \"open\", which is wrong in phase cutover_pending",
        ),
        (
            1,
            "UPDATE shardmaster_agent.generation SET generation = generation + 100",
            "UPDATE shardmaster_agent.generation SET generation = generation - 100",
            "target shard \"shard_b\" | it records worker ",
        ),
        (
            0,
            "ALTER SCHEMA shardmaster_agent RENAME TO away",
            "ALTER SCHEMA away RENAME TO shardmaster_agent",
            "source shard \"shard_a\" | shard \"shard_a\" does not know split 1: ",
        ),
        (
            1,
            "ALTER TABLE items RENAME TO away",
            "ALTER TABLE away RENAME TO items",
            "target shard \"shard_b\" | table items does not exist",
        ),
    ] {
        by_superuser(&cluster, server, wrong);
        let found = diagnosis(&split);
        by_superuser(&cluster, server, right);
        assert!(found.iter().any(|line| line.contains(told)), "{told}: {found:#?}");
        assert_eq!(found.len(), 2, "{found:#?}");
    }
    assert_eq!(diagnosis(&split).len(), 1);
}

/// Triggers that were disabled for a while are enabled again. The changes that they have missed are not
/// known, so a resume would not help.
#[test]
#[ignore = "make test-all: triggers that were off for a while; make test has what_is_wrong_on_a_shard_is_told_with_its_place"]
fn what_only_a_new_beginning_mends_is_told_as_such() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    for server in [0, 1] {
        to_pending(&split);
        by_superuser(&cluster, server, "ALTER TABLE items DISABLE TRIGGER ALL");
        split.failure(LIMIT).unwrap();
        let found = diagnosis(&split);
        let call = format!("SELECT shard_split_rollback({}), then start the split again.", split.id);
        assert!(found.len() == 2 && found.iter().all(|line| line.ends_with(&call)), "{found:#?}");
        by_superuser(&cluster, server, ENABLE);
        let found = diagnosis(&split);
        assert!(found.len() == 1 && found[0].ends_with(&call), "{found:#?}");
        assert_eq!(next(&split), Some(format!("SELECT shard_split_rollback({})", split.id)));
        split.call("resume").unwrap();
        split.failure(LIMIT).unwrap();
        split.call("rollback").unwrap();
        split.wait("rolled_back", LIMIT).unwrap();
        // Rows that other sessions may have written stay.
        assert_eq!(rows(&cluster, 1).is_empty(), server == 0);
        by_superuser(&cluster, 1, "DELETE FROM items");
    }
    split.run(|_| ()).unwrap();
    finished(&split);
}

/// A finish is refused because clients were not refused all the time. A verification compares the rows before
/// anything is lost.
#[test]
#[ignore = "make test-all: a refused finish; make test has what_is_to_be_typed_leads_to_the_end"]
fn what_a_refused_finish_would_lose_is_found_by_a_verification() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    split.run(|_| ()).unwrap();
    by_superuser(
        &cluster,
        0,
        &format!(
            "ALTER TABLE items DISABLE TRIGGER ALL; UPDATE items SET val = 'missed' WHERE tenant = 'moves' AND id = 2; {ENABLE}"
        ),
    );
    split.call("finish").unwrap();
    split.failure(LIMIT).unwrap();
    split.call("verify").unwrap();
    let differs = "SELECT coalesce(sum(differing), 0)::bigint = 1 FROM shard_split_verification($1)";
    wait::until("the row to be found", LIMIT, || {
        Ok(cluster.superuser()?.query_one(differs, &[&split.id])?.get::<_, bool>(0).then_some(()))
    })
    .unwrap();
    split.call("finish").unwrap();
    split.failure(LIMIT).unwrap();
}

/// A reverse split that has missed something cannot start again, and the next call is none that would abort it.
#[test]
#[ignore = "make test-all: a reverse split; make test has what_is_wrong_on_a_shard_is_told_with_its_place"]
fn a_way_back_that_has_missed_something_is_told_as_such() {
    let cluster = cluster(&["shardmaster.reverse = on"]);
    let split = plan(&cluster);
    split.run(|_| ()).unwrap();
    by_superuser(&cluster, 1, "ALTER TABLE items DISABLE TRIGGER ALL");
    by_superuser(&cluster, 1, ENABLE);
    split.call("reverse").unwrap();
    let back = "SELECT split_id FROM shard_split_metrics() WHERE reverse_of = $1";
    let back: i64 = cluster.superuser().unwrap().query_one(back, &[&split.id]).unwrap().get(0);
    let back = Split::of(&cluster, back);
    back.failure(LIMIT).unwrap();
    let found = diagnosis(&back);
    let told = format!("SELECT shard_split_rollback({}), finish split {}", back.id, split.id);
    assert!(found.iter().any(|line| line.contains(&told)), "{found:#?}");
    assert_eq!(next(&back), None);
    let refused = split.wait("finished", LIMIT).unwrap_err().to_string();
    assert!(refused.contains("is being taken back by split"), "{refused}");
    back.call("rollback").unwrap();
    back.wait("rolled_back", LIMIT).unwrap();
    let refused = back.wait("completed", LIMIT).unwrap_err().to_string();
    assert!(refused.contains("was rolled back"), "{refused}");
    let refused = split.wait("reversed", LIMIT).unwrap_err().to_string();
    assert!(refused.contains("has no reverse split"), "{refused}");
    // The error names the call that helps instead.
    for call in ["cutover", "rehearse", "switch_reads", "verify", "repair"] {
        let refused = back.call(call).unwrap_err().to_string();
        assert!(refused.contains(&format!("shard_split_finish({})", split.id)), "{call}: {refused}");
    }
    let hint_of = |wanted: &str| {
        let wait = format!("SELECT shard_split_wait({}, '{wanted}', '1 s')", split.id);
        let error = cluster.superuser().unwrap().batch_execute(&wait).unwrap_err();
        let refusal = error.as_db_error().unwrap();
        assert_eq!(refusal.code().code(), "55000", "{wanted}: {refusal:?}");
        refusal.hint().unwrap_or_default().to_owned()
    };
    assert!(hint_of("rolled_back").contains("plan a split in the other direction"));
    split.finish(LIMIT).unwrap();
    for wanted in ["rolled_back", "reversed"] {
        assert!(hint_of(wanted).contains("plan a split in the other direction"), "{wanted}");
    }
}

#[test]
fn what_is_wrong_on_the_master_is_told() {
    let mut cluster = cluster(&["shardmaster.remote_timeout = '2s'"]);
    let split = at_rest(&cluster);
    let (id, mut master) = (split.id, split.superuser().unwrap());
    let elsewhere = |from, to| {
        format!("UPDATE shardmaster.routing_entry SET write_shard = '{to}' WHERE write_shard = '{from}'")
    };
    master.batch_execute(&elsewhere("shard_a", "shard_b")).unwrap();
    let found = diagnosis(&split);
    let told = "master | 1 of its keys are not routed to shard \"shard_a\": key \"moves\" is routed to shard \"shard_b\"";
    assert!(found[1].starts_with(told), "{found:#?}");
    master.batch_execute(&elsewhere("shard_b", "shard_a")).unwrap();
    // The split was rolled back on the master only.
    master
        .batch_execute(
            "UPDATE shardmaster.split_plan SET phase = 'rolled_back', goal = 'rolled_back', paused = false",
        )
        .unwrap();
    let found = diagnosis(&split);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].contains("it still has objects of split 1, which has ended"), "{found:#?}");
    master
        .batch_execute("UPDATE shardmaster.split_plan SET phase = 'cutover_pending', goal = 'backfill'")
        .unwrap();
    drop(master);
    cluster.servers[1].stop(Stop::Fast).unwrap();
    let split = Split::of(&cluster, id);
    let found = diagnosis(&split);
    let target = found.iter().find(|line| line.starts_with("target shard \"shard_b\" | "));
    assert!(target.is_some_and(|line| line.contains("shard_b")), "{found:#?}");
}

#[test]
#[ignore = "make test-all: a shard that was set back; make test has what_is_wrong_on_a_shard_is_told_with_its_place"]
fn a_shard_that_has_forgotten_the_cutover_is_told() {
    let cluster = cluster(&["shardmaster.watch_interval = 0"]);
    let split = plan(&cluster);
    split.run(|_| ()).unwrap();
    for (server, state, place) in
        [(0, "capture", "source shard \"shard_a\""), (1, "closed", "target shard \"shard_b\"")]
    {
        by_superuser(&cluster, server, &format!("UPDATE shardmaster_agent.side SET state = '{state}'"));
        let found = diagnosis(&split);
        assert!(
            found.iter().any(|line| line.contains(&format!("{place} | {place} reports \"{state}\""))),
            "{found:#?}"
        );
        assert_eq!(found.len(), 1 + server, "{found:#?}");
    }
    by_superuser(&cluster, 1, "ALTER TABLE items DISABLE TRIGGER ALL");
    let found = diagnosis(&split);
    assert!(
        found.iter().any(|line| line.contains("a trigger of the split on public.items is missing")),
        "{found:#?}"
    );
    assert_eq!(next(&split), Some(format!("SELECT shard_split_finish({})", split.id)));
}

/// The diagnosis of a plan that cannot start contains the findings of its check.
#[test]
#[ignore = "make test-all: findings of the check; make test has what_is_to_be_typed_leads_to_the_end"]
fn what_the_check_finds_is_told_before_the_start() {
    let cluster = cluster(&[]);
    by_superuser(&cluster, 1, "INSERT INTO items VALUES ('moves', 1, 'x', 1)");
    let split = plan(&cluster);
    let found = diagnosis(&split);
    assert!(found.len() == 1 && found[0].contains("moves"), "{found:#?}");
    by_superuser(&cluster, 1, "DELETE FROM items");
    assert_eq!(diagnosis(&split), [""; 0]);
    split.run(|_| ()).unwrap();
    finished(&split);
    let mut client = cluster.servers[0].superuser(DATABASE).unwrap();
    assert!(client.query_opt("SELECT 1 FROM items WHERE tenant = 'moves'", &[]).unwrap().is_none());
}

/// Each attempt to reach a shard that hangs takes a time-out, and the worker's own attempts come between
/// those of the diagnosis.
#[test]
#[ignore = "make test-all: a shard that hangs; make test has tools::metrics::a_silent_source_costs_a_second"]
fn a_shard_that_hangs_is_not_looked_at_again_and_again() {
    let cluster = cluster(&["shardmaster.remote_timeout = '2s'"]);
    let split = plan(&cluster);
    to_pending(&split);
    cluster.servers[1].hang().unwrap();
    let retries = || Ok((split.metric::<String>("activity")? == "retrying").then_some(()));
    let tried = wait::until("attempts in vain", LIMIT, retries);
    let began = Instant::now();
    let found = diagnosis(&split);
    let took = began.elapsed();
    cluster.servers[1].wake().unwrap();
    tried.unwrap();
    assert!(found.iter().any(|line| line.starts_with("target shard \"shard_b\" | ")), "{found:#?}");
    // There are two attempts with a time-out each, and no other one begins within the three seconds between them.
    assert!(took < Duration::from_secs(9), "{took:?}");
}

/// While a cutover is held up, writes of its keys are routed to the target and refused. This is not a wrong route.
#[test]
#[ignore = "make test-all: a cutover that stands; make test has what_is_wrong_on_the_master_is_told"]
fn a_cutover_that_stands_is_no_wrong_route() {
    let cluster = cluster(&["shardmaster.cutover_timeout = 60000"]);
    let split = plan(&cluster);
    to_pending(&split);
    cluster.hold("cutover_disabled").unwrap();
    split.call("cutover").unwrap();
    split.wait_held("cutover_disabled", LIMIT).unwrap();
    let found = diagnosis(&split);
    let shown = "SELECT progress FROM shard_splits()";
    let shown: String = cluster.superuser().unwrap().query_one(shown, &[]).unwrap().get(0);
    cluster.fault("").unwrap();
    assert!(shown.contains("writers wait since "), "{shown}");
    assert!(found.iter().all(|line| !line.contains("not routed")), "{found:#?}");
    split.wait("completed", LIMIT).unwrap();
}

/// A call starts a worker, but nothing starts the next one.
#[test]
#[ignore = "make test-all: no worker; make test has what_is_wrong_on_the_master_is_told"]
fn where_nobody_starts_a_worker_it_is_said() {
    let cluster = cluster(&["shardmaster.database = 'elsewhere'"]);
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    let end = "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE backend_type LIKE 'shardmaster split %'";
    assert!(cluster.superuser().unwrap().query_one(end, &[]).unwrap().get::<_, bool>(0));
    let said: String = split.metric("waiting_for").unwrap();
    assert!(said.starts_with("a worker, but none is started: "), "{said}");
    let found = diagnosis(&split);
    let call = format!("CALL shard_split_run({})", split.id);
    assert!(found.iter().any(|line| line.contains("none is started") && line.contains(&call)), "{found:#?}");
    split.run(|_| ()).unwrap();
    assert_eq!(split.phase().unwrap(), "completed");
}
