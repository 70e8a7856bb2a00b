//! Output for an operator who runs a split by one call, and whom the split waits for.

use shardmaster_tests::cluster::{CLIENT, DATABASE, OWNER};
use shardmaster_tests::fixture::{LIMIT, by_superusers, cluster, plan, rows, to_pending};
use shardmaster_tests::server::Stop;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::sync::{Arc, Mutex};

/// Opens a client's transaction that has written a row that moves, under this application name.
fn writer(cluster: &shardmaster_tests::cluster::Cluster, program: &str) -> postgres::Client {
    let mut config = cluster.servers[0].config(DATABASE, CLIENT);
    let mut writer = config.application_name(program).connect(postgres::NoTls).unwrap();
    writer.batch_execute("BEGIN; UPDATE items SET val = 'sEcret' WHERE tenant = 'moves' AND id = 2").unwrap();
    writer
}

/// A cutover waits for a client. The output names all that helps to find the client, and nothing of the
/// written values. The summary mentions the client, too.
#[test]
fn a_run_names_whom_it_waits_for_and_ends_with_an_account() {
    let cluster = cluster(&["shardmaster.cutover_timeout = 60000"]);
    let split = plan(&cluster);
    to_pending(&split);
    let mut blocker = writer(&cluster, "the shop");
    let lines = Arc::new(Mutex::new(Vec::new()));
    let heard = lines.clone();
    let said = |words: &[&str]| {
        let lines: std::sync::MutexGuard<'_, Vec<String>> = lines.lock().unwrap();
        lines.iter().any(|line| words.iter().all(|word| line.contains(word))).then_some(())
    };
    std::thread::scope(|scope| {
        let hear = move |line: &str| heard.lock().unwrap().push(line.to_owned());
        let run = scope.spawn(|| Split::of(&cluster, split.id).run(hear));
        let words = [
            "waiting for",
            "shard \"shard_a\"",
            "user app",
            "application the shop",
            "idle after BEGIN",
            "open for",
        ];
        wait::until("the client to be named", LIMIT, || Ok(said(&words))).unwrap();
        let diagnosed = "SELECT problem FROM shard_split_diagnose($1) WHERE place = 'master'";
        let found = cluster.superuser().unwrap().query(diagnosed, &[&split.id]).unwrap();
        let found: Vec<&str> = found.iter().map(|row| row.get(0)).collect();
        assert!(
            found.iter().any(|text| text.contains("it waits for") && text.contains("the shop")),
            "{found:?}"
        );
        blocker.batch_execute("COMMIT").unwrap();
        run.join().unwrap().unwrap();
    });
    let lines: Vec<String> = lines.lock().unwrap().clone();
    let account = lines.last().unwrap();
    for words in
        ["completed after", "300 rows copied", "writers waited at most", "the cutover waited for", "the shop"]
    {
        assert!(account.contains(words), "{words}: {lines:#?}");
    }
    assert!(account.ends_with(&format!("next: SELECT shard_split_finish({})", split.id)), "{account}");
    assert!(lines.iter().all(|line| !line.contains("sEcret")), "{lines:#?}");
    assert!(!split.events().unwrap().contains("sEcret"));
    assert_eq!(rows(&cluster, 1).len(), 300);
    // The split is idle, and the missing call is reported.
    wait::until("its rest", LIMIT, || {
        let said: Option<String> = split.metric("waiting_for")?;
        let rests = split.metric::<String>("activity")? == "idle";
        Ok((rests && said.as_deref() == Some("waiting for shard_split_finish")).then_some(()))
    })
    .unwrap();
    split.finish(LIMIT).unwrap();
}

/// An attempt waits for a client without success. The next one finds the client gone.
#[test]
#[ignore = "make test-all: a second attempt; make test has a_run_names_whom_it_waits_for_and_ends_with_an_account"]
fn a_run_tries_a_cutover_again() {
    let cluster = cluster(&["shardmaster.cutover_timeout = 3000"]);
    let split = plan(&cluster);
    to_pending(&split);
    let mut blocker = writer(&cluster, "the shop");
    std::thread::scope(|scope| {
        let run = scope.spawn(|| Split::of(&cluster, split.id).run(|_| ()));
        split.wait_for_event("attempt 2 of 3 follows", LIMIT).unwrap();
        blocker.batch_execute("COMMIT").unwrap();
        run.join().unwrap().unwrap();
    });
    assert_eq!(split.phase().unwrap(), "completed");
    split.finish(LIMIT).unwrap();
}

/// A call with 'rolled_back' takes a plan back, even if it has not begun. If it was rolled back already,
/// nothing happens.
#[test]
fn a_run_takes_back() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    let mut master = cluster.superuser().unwrap();
    let call = format!("CALL shard_split_run({}, 'rolled_back')", split.id);
    master.batch_execute(&call).unwrap();
    assert_eq!(split.phase().unwrap(), "rolled_back");
    master.batch_execute(&call).unwrap();
    to_pending(&split);
    master.batch_execute(&call).unwrap();
    assert_eq!(split.phase().unwrap(), "rolled_back");
    assert_eq!(rows(&cluster, 1).len(), 0);
    split.call("start_dual_write").unwrap();
    split.run(|_| ()).unwrap();
    let refused = master.batch_execute(&call).unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "55000");
    assert!(refused.hint().unwrap().contains("shard_split_reverse"), "{refused:?}");
    split.finish(LIMIT).unwrap();
}

/// The summary of a check counts the rows that move, and is not a finding.
#[test]
#[ignore = "make test-all: what a check counts; make test has a_run_names_whom_it_waits_for_and_ends_with_an_account"]
fn a_check_says_how_much_moves() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    let mut master = cluster.superuser().unwrap();
    let query = "SELECT check_name, ok, detail FROM shard_split_check($1) LIMIT 1";
    let row = master.query_one(query, &[&split.id]).unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, Option<bool>>(1)), ("summary", None));
    let detail: String = row.get(2);
    assert!(detail.starts_with("ready: about 300 rows, "), "{detail}");
    assert!(
        detail.contains(" in 1 table, a copy of about ") && detail.contains("writers wait about "),
        "{detail}"
    );
    assert!(!detail.contains("open for"), "{detail}");
    // The summary names a transaction that a split would wait for.
    let _writer = writer(&cluster, "the shop");
    wait::until("an old writer to be told of", LIMIT, || {
        let detail: String = master.query_one(query, &[&split.id])?.get(2);
        Ok(detail.contains("the oldest on the source has been open for").then_some(()))
    })
    .unwrap();
    // Rows of large tables are estimated.
    cluster.servers[0]
        .superuser(DATABASE)
        .unwrap()
        .batch_execute(
            "INSERT INTO items SELECT CASE i % 4 WHEN 0 THEN 'moves' ELSE 'stays' END, i, repeat('x', 100), i FROM generate_series(1001, 161000) i;
             ANALYZE items",
        )
        .unwrap();
    let detail: String = master.query_one(query, &[&split.id]).unwrap().get(2);
    let number = |text: &str| text.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap();
    assert!((30_000..55_000).contains(&number(&detail)), "{detail}");
}

/// If a split cannot begin, the reason is reported once, with its remedy, and the call ends. It can be called
/// again after the repair.
#[test]
fn a_run_that_cannot_begin_ends_and_says_why() {
    let mut cluster = cluster(&[]);
    cluster.servers[1].stop(Stop::Fast).unwrap();
    let split = plan(&cluster);
    let id = split.id;
    let (lines, refused) = {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let heard = lines.clone();
        let refused = split.run(move |line| heard.lock().unwrap().push(line.to_owned())).unwrap_err();
        (lines.lock().unwrap().clone(), refused.to_string())
    };
    assert!(refused.contains(&format!("split {id} has not begun, since shard \"shard_b\": ")), "{refused}");
    let told: Vec<&String> = lines.iter().filter(|line| line.contains("retrying since")).collect();
    assert_eq!(told.len(), 1, "{lines:#?}");
    assert!(told[0].contains("Check that the server runs"), "{lines:#?}");
    assert_eq!(lines.last(), Some(told[0]), "{lines:#?}");
    let mut master = cluster.superuser().unwrap();
    let refused = master.batch_execute(&format!("CALL shard_split_run({id})")).unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "57014");
    assert!(refused.hint().unwrap().contains(&format!("CALL shard_split_run({id}, 'rolled_back')")));
    cluster.servers[1].run().unwrap();
    let split = Split::of(&cluster, id);
    split.run(|_| ()).unwrap();
    assert_eq!(split.phase().unwrap(), "completed");
}

/// Only psql shows the copy as a bar. During a rollback the line has neither a percentage nor a remaining time.
#[test]
#[ignore = "make test-all: what a line says at each time; make test has a_run_names_whom_it_waits_for_and_ends_with_an_account"]
fn a_line_says_which_way_a_split_goes() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    cluster.hold("step_chunk").unwrap();
    split.call("start_dual_write").unwrap();
    split.call("run_backfill").unwrap();
    split.wait_held("step_chunk", LIMIT).unwrap();
    let mut master = cluster.superuser().unwrap();
    let asked = format!("SELECT shardmaster.split_line({})", split.id);
    let mut line = |program: &str| -> String {
        master.batch_execute(&format!("SET application_name = '{program}'")).unwrap();
        master.query_one(&asked, &[]).unwrap().get(0)
    };
    assert!(line("psql").contains(": backfill, [....................] 0 %"), "{}", line("psql"));
    assert!(line("a script").contains(": backfill, 0 %"), "{}", line("a script"));
    let check = "SELECT detail FROM shard_split_check($1) LIMIT 1";
    let standing =
        |master: &mut postgres::Client| -> String { master.query_one(check, &[&split.id]).unwrap().get(0) };
    let mut other = cluster.superuser().unwrap();
    assert!(standing(&mut other).starts_with("begun, in phase backfill"), "{}", standing(&mut other));
    split.call("rollback").unwrap();
    cluster.hold("rollback_capture").unwrap();
    split.wait_held("rollback_capture", LIMIT).unwrap();
    let back = line("psql");
    assert!(back.contains(": rolling back from "), "{back}");
    assert!(!back.contains('%') && !back.contains(" left") && !back.contains("copied"), "{back}");
    let shown = other.query_one("SELECT progress FROM shard_splits()", &[]).unwrap();
    assert_eq!(shown.get::<_, &str>(0), "rolling back");
    let report: String = other.query_one("SELECT shard_report()", &[]).unwrap().get(0);
    assert!(report.contains("rolling back"));
    assert!(standing(&mut other).starts_with("rolling back from phase "), "{}", standing(&mut other));
    // One side is clean before the other. This is not reported as a shard that was restored.
    let told = other.query("SELECT problem FROM shard_split_diagnose($1)", &[&split.id]).unwrap();
    let told: Vec<&str> = told.iter().map(|row| row.get(0)).collect();
    assert!(told.iter().all(|problem| problem.starts_with("it waits for")), "{told:?}");
    let refused = split.run(|_| ()).unwrap_err().to_string();
    assert!(refused.contains("is being rolled back"), "{refused}");
    // A caller who wants its keys is told to wait.
    let again = "SELECT shard_split_plan('shard_a', 'shard_b', '{moves}')";
    let refused = master.batch_execute(again).unwrap_err();
    let hint = refused.as_db_error().and_then(|error| error.hint()).unwrap_or_default();
    let wait = format!("SELECT shard_split_wait({}, 'rolled_back')", split.id);
    assert!(hint.contains(&wait), "{hint}");
    cluster.fault("").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    assert!(standing(&mut other).starts_with("ready: "), "{}", standing(&mut other));
    split.run(|_| ()).unwrap();
    assert!(standing(&mut other).starts_with("begun, in phase completed"), "{}", standing(&mut other));
    // A split that has ended has no findings about a start.
    split.finish(LIMIT).unwrap();
    let rows = other.query("SELECT detail FROM shard_split_check($1)", &[&split.id]).unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<_, String>(0)).collect::<Vec<_>>(), ["finished"]);
}

/// A run does not undo a rollback that another session has requested meanwhile.
#[test]
#[ignore = "make test-all: somebody else's rollback; make test has a_run_takes_back"]
fn a_run_ends_where_somebody_else_rolls_back() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    cluster.hold("install_begin").unwrap();
    std::thread::scope(|scope| {
        let run = scope.spawn(|| Split::of(&cluster, split.id).run(|_| ()));
        split.wait_held("install_begin", LIMIT).unwrap();
        split.call("rollback").unwrap();
        cluster.fault("").unwrap();
        let refused = run.join().unwrap().unwrap_err().to_string();
        assert!(refused.contains("rolled back"), "{refused}");
    });
    split.wait("rolled_back", LIMIT).unwrap();
    assert!(rows(&cluster, 1).is_empty());
    // The next run starts the plan again.
    split.run(|_| ()).unwrap();
    assert_eq!(split.phase().unwrap(), "completed");
}

/// If the extension is dropped, a notice names the redirects that stay. They were left on purpose.
#[test]
#[ignore = "make test-all: what is said of redirects; make test has masters::workers::the_extension_stays_while_a_split_is_unfinished"]
fn a_dropped_extension_names_the_redirects_that_stay() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let hears = heard.clone();
    let mut config = cluster.master.config(DATABASE, "postgres");
    config.notice_callback(move |notice| hears.lock().unwrap().push(format!("{notice:?}")));
    let mut master: postgres::Client = config.connect(postgres::NoTls).unwrap();
    let mut told = || {
        heard.lock().unwrap().clear();
        master.batch_execute("BEGIN; DROP EXTENSION shardmaster CASCADE; ROLLBACK").unwrap();
        heard
            .lock()
            .unwrap()
            .iter()
            .filter(|notice| notice.contains("stale route"))
            .cloned()
            .collect::<Vec<_>>()
    };
    let notices = told();
    assert_eq!(notices.len(), 1, "{notices:?}");
    assert!(
        notices[0].contains("\\\"shard_a\\\"") && notices[0].contains("shard_split_redirect_drop"),
        "{notices:?}"
    );
    split.drop_guard().unwrap();
    assert!(told().is_empty());
}

/// A rollback ends a pause. The split is shown as rolling back, has no next call, and cannot be paused.
#[test]
#[ignore = "make test-all: a pause; make test has a_run_takes_back"]
fn a_paused_split_that_is_rolled_back_rests_no_more() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    split.call("pause").unwrap();
    wait::until("its rest", LIMIT, || Ok((split.metric::<String>("activity")? == "paused").then_some(())))
        .unwrap();
    cluster.hold("rollback_capture").unwrap();
    split.call("rollback").unwrap();
    split.wait_held("rollback_capture", LIMIT).unwrap();
    assert_eq!(split.metric::<String>("activity").unwrap(), "working");
    assert_eq!(split.metric::<Option<String>>("next_call").unwrap(), None);
    let mut master = cluster.superuser().unwrap();
    let shown = master.query_one("SELECT progress FROM shard_splits()", &[]).unwrap();
    assert_eq!(shown.get::<_, &str>(0), "rolling back");
    let told = master.query("SELECT problem FROM shard_split_diagnose($1)", &[&split.id]).unwrap();
    assert!(told.iter().all(|row| !row.get::<_, &str>(0).contains("paused")), "{told:?}");
    let refused = split.call("pause").unwrap_err().to_string();
    assert!(refused.contains("is being rolled back"), "{refused}");
    cluster.fault("").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    split.run(|_| ()).unwrap();
    assert_eq!(split.phase().unwrap(), "completed");
}

/// If no coordinator watches the database, the session that watches the split starts its worker.
#[test]
#[ignore = "make test-all: no coordinator; make test has masters::workers::without_preload_the_calls_start_workers"]
fn a_run_without_a_coordinator_starts_another_worker() {
    let cluster = cluster(&["shardmaster.database = 'elsewhere'"]);
    let split = plan(&cluster);
    cluster.hold("step_chunk").unwrap();
    let (config, call) =
        (cluster.master.config(DATABASE, "postgres"), format!("CALL shard_split_run({})", split.id));
    let run = std::thread::spawn(move || config.connect(postgres::NoTls)?.batch_execute(&call));
    split.wait_held("step_chunk", LIMIT).unwrap();
    cluster.fault("").unwrap();
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'shardmaster split ' || $1";
    let ended: i64 = cluster.superuser().unwrap().query_one(end, &[&split.id.to_string()]).unwrap().get(0);
    assert_eq!(ended, 1);
    wait::until("the run to end", LIMIT, || Ok(run.is_finished().then_some(()))).unwrap();
    run.join().unwrap().unwrap();
    assert_eq!(split.phase().unwrap(), "completed");
    assert_eq!(rows(&cluster, 1).len(), 300);
    split.finish(LIMIT).unwrap();
}

/// A plan that was rolled back has released its shards and keys. The check finds out whether it would be
/// accepted again before it is started.
#[test]
#[ignore = "make test-all: each thing that a plan may lack; make test has a_run_that_cannot_begin_ends_and_says_why"]
fn a_plan_that_is_not_taken_again_is_not_ready() {
    let cluster = cluster(&[]);
    by_superusers(
        &cluster,
        &format!(
            "CREATE TABLE docs (path text COLLATE \"C\" PRIMARY KEY); ALTER TABLE docs OWNER TO {OWNER}"
        ),
    );
    let mut master = cluster.superuser().unwrap();
    master
        .batch_execute(
            "SELECT shard_keyspace_add('docs', 'range', key_type => 'text');
             SELECT shard_table_add('docs', shard_by => 'path', keyspace => 'docs');
             SELECT shard_assign_range(NULL, NULL, 'shard_a', 'docs')",
        )
        .unwrap();
    let range = "SELECT shard_split_plan_range('shard_a', 'shard_b', 'f', 'n', keyspace => 'docs')";
    let range = Split::of(&cluster, master.query_one(range, &[]).unwrap().get(0));
    range.call("rollback").unwrap();
    range.wait("rolled_back", LIMIT).unwrap();
    let split = plan(&cluster);
    split.call("rollback").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    let mut found = |split: &Split<'_>| -> Vec<(String, String)> {
        let query = "SELECT detail, coalesce(hint, '') FROM shard_split_check($1) WHERE check_name IN ('summary', 'plan')";
        let rows = master.query(query, &[&split.id]).unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    };
    for (split, wrong, right, told, hint) in [
        (
            &split,
            "SELECT shard_set_status('shard_b', 'disabled')",
            "SELECT shard_set_status('shard_b', 'active')",
            "target shard \"shard_b\" is disabled",
            "shard_set_status()",
        ),
        (
            &split,
            "SELECT shard_unassign('moves')",
            "SELECT shard_assign('moves', 'shard_a')",
            "not routed to source shard \"shard_a\": \"moves\"",
            "shard_assign()",
        ),
        (
            &range,
            "SELECT shard_join_ranges('docs')",
            "SELECT 1",
            "not routed to source shard \"shard_a\"",
            "joined or divided since",
        ),
    ] {
        let ready = found(split);
        assert!(ready.len() == 1 && ready[0].0.starts_with("ready: "), "{ready:?}");
        cluster.superuser().unwrap().batch_execute(wrong).unwrap();
        let bad = found(split);
        assert!(bad[0].0.starts_with("not ready, 1 finding"), "{bad:?}");
        assert!(bad[1].0.contains(told) && bad[1].1.contains(hint), "{bad:?}");
        let refused = split.call("start_dual_write").unwrap_err().to_string();
        assert!(refused.contains(told), "{refused}");
        cluster.superuser().unwrap().batch_execute(right).unwrap();
    }
    assert_eq!(split.wait("completed", LIMIT).unwrap_err().sqlstate(), Some("55000"));
    // The check uses the keyspace's present tables, and mappings of columns until they are removed.
    for (wrong, right, told) in [
        ("SELECT shard_table_add('nowhere', 'tenant')", "SELECT shard_table_drop('nowhere')", "nowhere"),
        (
            "SELECT shard_split_map(2, 'items', 'id', 'id + 1')",
            "SELECT shard_split_map(2, 'items', 'id', 'id')",
            "cannot be computed",
        ),
    ] {
        let query = "SELECT concat_ws(': ', detail, hint) FROM shard_split_check($1)";
        let told_by = || -> Vec<String> {
            let rows = cluster.superuser().unwrap().query(query, &[&split.id]).unwrap();
            rows.iter().map(|row| row.get(0)).collect()
        };
        cluster.superuser().unwrap().batch_execute(wrong).unwrap();
        let found = told_by();
        assert!(
            found[0].starts_with("not ready") && found.iter().any(|line| line.contains(told)),
            "{found:?}"
        );
        cluster.superuser().unwrap().batch_execute(right).unwrap();
        let found = told_by();
        assert!(found[0].starts_with("ready: "), "{found:?}");
    }
}
