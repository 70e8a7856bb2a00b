//! Owners and compromised servers gain nothing by a split: no right of somebody else, and no way to make others wait.

use shardmaster_tests::attacker::{own_the_table, session};
use shardmaster_tests::cluster::{CLIENT, DATABASE, MOVER};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{
    LIMIT, by_superuser as run, client, cluster, cut_over_and_compare, forget_splits, plan, state_of,
    to_pending,
};
use shardmaster_tests::relay::NOTICE;
use shardmaster_tests::relayed_cluster::{
    GRACE, RelayedCluster, TIMEOUT, given_up, interrupt, is_routed_back, writes_within,
};
use shardmaster_tests::split::Split;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// An owner may draw from a sequence and not set it. A default that uses the sequence does not make the split
/// raise it.
#[test]
fn a_sequence_is_raised_that_the_tables_owner_may_set() {
    let cluster = cluster(&[]);
    own_the_table(&cluster);
    run(
        &cluster,
        1,
        &format!(
            "CREATE ROLE somebody; GRANT somebody TO {MOVER}; CREATE SEQUENCE theirs; ALTER SEQUENCE theirs OWNER TO somebody;
             GRANT USAGE ON SEQUENCE theirs TO mallory, {MOVER}; GRANT SELECT ON SEQUENCE theirs TO PUBLIC"
        ),
    );
    for shard in ["shard_a", "shard_b"] {
        session(&cluster, shard)
            .batch_execute("CREATE SEQUENCE own; ALTER TABLE items ADD n bigint DEFAULT nextval('own')")
            .unwrap();
    }
    let mut owner = session(&cluster, "shard_b");
    let last = |name: &str| -> i64 {
        let mut superuser = cluster.servers[1].superuser(DATABASE).unwrap();
        superuser.query_one(&format!("SELECT last_value FROM {name}"), &[]).unwrap().get(0)
    };
    session(&cluster, "shard_a").batch_execute("SELECT setval('own', 70000)").unwrap();
    let split = plan(&cluster);
    let foreign = "ALTER TABLE items ALTER n SET DEFAULT nextval('theirs')";
    let own = "ALTER TABLE items ALTER n SET DEFAULT nextval('own')";
    let says = "sequence public.theirs cannot be set by role mallory";
    owner.batch_execute(foreign).unwrap();
    let refused = split.findings_with_hints().unwrap();
    assert!(refused.iter().any(|text| text.contains(says) && text.contains("GRANT UPDATE")), "{refused:?}");
    owner.batch_execute(own).unwrap();
    assert_eq!(split.findings_with_hints().unwrap(), Vec::<String>::new());
    to_pending(&split);
    // This happens after the check.
    owner.batch_execute(foreign).unwrap();
    split.wait_settled(LIMIT).unwrap();
    split.call("cutover").unwrap();
    let error = split.wait("completed", LIMIT).err().map(|error| error.to_string()).unwrap_or_default();
    assert_eq!(last("theirs"), 1);
    assert!(error.contains(says), "{error}");
    run(&cluster, 1, "GRANT UPDATE ON SEQUENCE theirs TO mallory");
    cut_over_and_compare(&cluster, &split);
    assert!(last("theirs") > 70_000);
}

/// To ask whether two addresses are one database, the master uses a number of its own. Others may have locked
/// what a server presents as random.
#[test]
fn no_shard_says_which_lock_is_taken_on_another() {
    let cluster = cluster(&[]);
    for (liar, other) in [(0, 1), (1, 0)] {
        run(
            &cluster,
            liar,
            "CREATE OR REPLACE FUNCTION pg_catalog.random() RETURNS float8 LANGUAGE sql AS 'SELECT 0::float8'",
        );
        let mut holder = cluster.servers[other].connect(DATABASE, CLIENT).unwrap();
        holder.batch_execute("SELECT pg_advisory_lock(0)").unwrap();
        let split = plan(&cluster);
        let same = "SELECT count(DISTINCT o) FROM unnest($1::oid[]) o";
        let oids: Vec<u32> = (0..2)
            .map(|server| {
                let mut session = cluster.servers[server].superuser(DATABASE).unwrap();
                session.query_one("SELECT 'items'::regclass::oid", &[]).unwrap().get(0)
            })
            .collect();
        let mut master = cluster.superuser().unwrap();
        assert_eq!(master.query_one(same, &[&oids]).unwrap().get::<_, i64>(0), 1, "nothing is asked");
        assert_eq!(split.findings_with_hints().unwrap(), Vec::<String>::new());
        split.call("rollback").unwrap();
        split.wait("rolled_back", LIMIT).unwrap();
        let truth =
            "CREATE OR REPLACE FUNCTION pg_catalog.random() RETURNS float8 LANGUAGE internal AS 'drandom'";
        run(&cluster, liar, truth);
    }
}

/// A shard that does not answer this question takes only a limited time.
#[test]
fn the_question_whether_two_addresses_are_one_ends_soon() {
    let cluster = cluster(&["shardmaster.remote_timeout = 60s"]);
    for name in ["pg_advisory_xact_lock", "pg_try_advisory_xact_lock"] {
        let returns = if name.contains("try") { "boolean" } else { "void" };
        let body =
            if name.contains("try") { "SELECT pg_sleep(1000) IS NULL" } else { "SELECT pg_sleep(1000)" };
        run(
            &cluster,
            1,
            &format!(
                "CREATE OR REPLACE FUNCTION pg_catalog.{name}(bigint) RETURNS {returns} LANGUAGE sql AS '{body}'"
            ),
        );
    }
    let split = plan(&cluster);
    let began = Instant::now();
    let refused = split.findings_with_hints().unwrap();
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    assert!(refused.iter().any(|text| text.contains("no answer within")), "{refused:?}");
}

/// Returns the most memory that a session on the master has had, in bytes.
fn most_memory(session: &mut postgres::Client) -> u64 {
    let pid: i32 = session.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// Cleanup does not keep long texts that a shard has put into the agent's tables.
#[test]
fn cleanup_keeps_no_long_text_of_a_shard() {
    const MB: u64 = 1 << 20;
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    let mut master = cluster.superuser().unwrap();
    forget_splits(&mut master);
    master.batch_execute("SELECT shard_assign('moves', 'shard_a', force => true)").unwrap();
    // Each side is kept, because this master routes its key here.
    run(
        &cluster,
        0,
        "DO $do$ BEGIN
             FOR n IN 2..9 LOOP
                 EXECUTE format('CREATE TABLE shardmaster_agent.scope_%s_s AS SELECT * FROM shardmaster_agent.scope_1_s', n);
                 EXECUTE format('ALTER TABLE shardmaster_agent.scope_%s_s OWNER TO mover', n);
                 INSERT INTO shardmaster_agent.side
                 SELECT n, side, state, version, token, shard, repeat('x', 24 << 20), namespace, keyspace, entries
                   FROM shardmaster_agent.side WHERE split_id = 1;
             END LOOP;
         END $do$",
    );
    let mut session = cluster.superuser().unwrap();
    let query = "SELECT count(*), max(length(action)) FROM shard_cleanup('shard_a')";
    let row = session.query_one(query, &[]).unwrap();
    let (kept, longest): (i64, i32) = (row.get(0), row.get(1));
    assert!(kept >= 9 && longest < 10_000, "{kept} {longest}");
    let most = most_memory(&mut session);
    assert!(most < 150 * MB, "{} MB", most / MB);
}

/// A number that cleanup would not find again is not adopted.
#[test]
fn no_shard_is_adopted_with_numbers_that_cleanup_does_not_know() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let mut master = cluster.superuser().unwrap();
    for (number, is_taken) in [
        (4_000_000_000_000_000_000_i64, false),
        (1_000_000_000_000_000_000, false),
        (999_999_999_999_999_999, false),
        (123_456, true),
    ] {
        run(
            &cluster,
            0,
            &format!(
                "DELETE FROM shardmaster_agent.side WHERE split_id > 1; INSERT INTO shardmaster_agent.side
                 SELECT {number}, side, state, version, token, shard, other_shard, namespace, keyspace, entries
                   FROM shardmaster_agent.side WHERE split_id = 1"
            ),
        );
        let adopted = master.batch_execute("SELECT shard_adopt('shard_a')");
        assert_eq!(adopted.is_ok(), is_taken, "{number}: {adopted:?}");
    }
    run(&cluster, 0, "DELETE FROM shardmaster_agent.side WHERE split_id > 1");
    assert_eq!(Split::plan(&cluster, "shard_a", "shard_b", &["stays"]).unwrap().id, 123_457);
}

/// A session belongs to a worker while it has the secret, and neither before nor afterwards, whatever plans
/// it has cached.
#[test]
fn a_session_is_the_movers_while_it_has_the_secret() {
    let cluster = cluster(&[]);
    let split = plan(&cluster);
    to_pending(&split);
    let mut master = cluster.superuser().unwrap();
    let query = "SELECT secret FROM shardmaster.split_plan WHERE id = $1";
    let secret: String = master.query_one(query, &[&split.id]).unwrap().get(0);
    let know = format!("SET shardmaster_agent.mover = '{secret}'");
    let forget = "RESET shardmaster_agent.mover";
    let guess = "SET shardmaster_agent.mover = 'guessed'";
    let own = "INSERT INTO items VALUES ('moves', 9000, 'x', 9000)";
    // This applies to the target, and further below to the source of a redirect, in both orders.
    let tries = |server: usize, statement: &str, state: &str| {
        for order in [[guess, know.as_str(), guess, forget], [know.as_str(), guess, forget, know.as_str()]] {
            let mut client = cluster.servers[server].connect(DATABASE, CLIENT).unwrap();
            client.batch_execute(&format!("PREPARE again AS {own}")).unwrap();
            for set in order {
                client.batch_execute(set).unwrap();
                let outcome = client.batch_execute(&format!("BEGIN; {statement}"));
                client.batch_execute("ROLLBACK").unwrap();
                let is = outcome.as_ref().err().map_or("passed", state_of);
                let expected = if set == know { "passed" } else { state };
                assert_eq!(is, expected, "{order:?}: {set}: {statement}");
            }
        }
    };
    tries(1, "TRUNCATE items", "55006");
    tries(1, own, "SM002");
    tries(1, "EXECUTE again", "SM002");
    split.call("cutover").unwrap();
    split.wait("completed", LIMIT).unwrap();
    tries(0, own, "SM001");
    tries(0, "EXECUTE again", "SM001");
}

/// Nested types, each of which contains the next one twice. They are not followed to their end.
#[test]
fn types_that_are_nested_without_an_end_are_refused() {
    let cluster = cluster(&["shardmaster.remote_timeout = 60s"]);
    own_the_table(&cluster);
    let nest = |depth: usize, wide: usize| {
        let mut text = "CREATE TYPE t0 AS (a int);".to_owned();
        for n in 1..=depth {
            let parts: Vec<String> = (0..wide).map(|part| format!("p{part} t{}", n - 1)).collect();
            text += &format!("CREATE TYPE t{n} AS ({});", parts.join(", "));
        }
        text + &format!("ALTER TABLE items ADD nested t{depth}")
    };
    let drop = "ALTER TABLE items DROP nested; DROP TYPE t0 CASCADE;
                DO $$ DECLARE t text; BEGIN
                    FOR t IN SELECT typname FROM pg_type WHERE typname ~ '^t[0-9]+$' AND typtype = 'c'
                    LOOP EXECUTE format('DROP TYPE IF EXISTS %I CASCADE', t); END LOOP;
                END $$";
    let split = plan(&cluster);
    for (depth, wide) in [(24, 2), (200, 1)].into_iter().take(at_most(1)) {
        for shard in ["shard_a", "shard_b"] {
            session(&cluster, shard).batch_execute(&nest(depth, wide)).unwrap();
        }
        let began = Instant::now();
        let refused = split.findings_with_hints().unwrap();
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        let says = format!("public.items.nested: type public.t{depth} is made of more");
        assert!(refused.iter().any(|text| text.contains(&says)), "{says}: {refused:?}");
        for shard in ["shard_a", "shard_b"] {
            session(&cluster, shard).batch_execute(drop).unwrap();
        }
    }
    for shard in ["shard_a", "shard_b"] {
        session(&cluster, shard).batch_execute(&nest(8, 2)).unwrap();
    }
    assert_eq!(split.findings_with_hints().unwrap(), Vec::<String>::new());
    to_pending(&split);
}

/// An endless stream of notices is not an answer. Writers wait for a target that sends them until the
/// deadline, and no longer.
#[test]
fn a_target_that_babbles_in_the_cutover_keeps_no_writer_out() {
    let stage = RelayedCluster::new(&["shardmaster.remote_timeout = 2s"]);
    let split = plan(&stage.cluster);
    to_pending(&split);
    let mut writer = client(&stage.cluster);
    for point in ["cutover_fenced", "cutover_locked"].into_iter().take(at_most(1)) {
        interrupt(&split, &stage.cluster, point, || stage.target.babble());
        writes_within(&mut writer, TIMEOUT + GRACE);
        given_up(&split);
        assert!(is_routed_back(&stage.cluster), "{point}");
        stage.target.mend();
        split.wait_settled(LIMIT).unwrap();
    }
    cut_over_and_compare(&stage.cluster, &split);
}

/// Starts a server that sends notices without end, before or after it accepts a session. Returns its
/// connection string.
fn babbles(lets_in: bool, pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = client.read(&mut [0; 8192]);
                let _ = client.write_all(b"R\0\0\0\x08\0\0\0\0");
                if lets_in {
                    let _ = client.write_all(b"Z\0\0\0\x05I");
                }
                // Without a pause there is always something to read.
                let notices = NOTICE.repeat(if pause.is_zero() { 5000 } else { 1 });
                while client.write_all(&notices).is_ok() {
                    std::thread::sleep(pause);
                }
            });
        }
    });
    format!("host=127.0.0.1 port={port} dbname=x user=y sslmode=disable gssencmode=disable")
}

/// A call does not wait endlessly for such a server either.
#[test]
fn a_call_ends_whatever_a_shard_sends_in_the_place_of_an_answer() {
    let cluster = cluster(&["shardmaster.remote_timeout = 1s"]);
    let split = plan(&cluster);
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    split.call("pause").unwrap();
    let mut master = cluster.superuser().unwrap();
    master.batch_execute("SET statement_timeout = '40s'").unwrap();
    let little = Duration::from_millis(50);
    let ways = [(true, little), (true, Duration::ZERO), (false, Duration::ZERO)];
    for (lets_in, pause) in ways.into_iter().take(at_most(1)) {
        let conninfo = babbles(lets_in, pause);
        master
            .execute("UPDATE shardmaster.shard SET conninfo = $1 WHERE shard_key = 'shard_a'", &[&conninfo])
            .unwrap();
        let figures = "SELECT problem FROM shardmaster.split_figures($1)";
        let problem: Option<String> = master.query_one(figures, &[&split.id]).unwrap().get(0);
        assert!(problem.is_some_and(|text| text.contains("no answer")), "{lets_in} {pause:?}");
        for call in ["shard_trust_owner('shard_a', 'x')", "shard_cleanup('shard_a')"] {
            let error = master.batch_execute(&format!("SELECT {call}")).unwrap_err();
            assert_eq!(state_of(&error), "08006", "{call}: {lets_in} {pause:?}: {error}");
        }
    }
}

/// A server before version 14, or one that claims to be, cannot keep a cancelled session either. libpq asks
/// it to end the statement, and waits until it closes the connection.
#[test]
fn a_call_that_is_cancelled_ends_whatever_the_shard_does() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for mut client in listener.incoming().flatten() {
            let length = client.read(&mut [0; 8192]).unwrap_or(0);
            // A cancel request has 16 bytes, and is never answered.
            if length > 16 {
                let _ =
                    client.write_all(b"R\0\0\0\x08\0\0\0\0S\0\0\0\x18server_version\x0013.0\0Z\0\0\0\x05I");
            }
            kept.push(client);
        }
    });
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    let conninfo = format!("host=127.0.0.1 port={port} dbname=x user=y sslmode=disable gssencmode=disable");
    master.execute("SELECT shard_add('old', $1)", &[&conninfo]).unwrap();
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        master.batch_execute("SET statement_timeout = '2s'").unwrap();
        let _ = done.send(master.batch_execute("SELECT shard_trust_owner('old', 'x')"));
    });
    let outcome = is_done.recv_timeout(Duration::from_secs(20)).expect("the session hangs");
    assert_eq!(state_of(&outcome.unwrap_err()), "57014");
}
