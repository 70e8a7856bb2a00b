//! A shard whose server sends messages that nobody has asked for, in long-lived sessions. It takes neither
//! the master's memory nor a worker's time.

use shardmaster_tests::chatty_server::{ChattyServer, message};
use shardmaster_tests::cluster::{Cluster, DATABASE};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{LIMIT, by_superuser as run, cluster};
use shardmaster_tests::queries;
use shardmaster_tests::relay::NOTICE;
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::sleep;
use std::time::Duration;

type ExtraMessages = Box<dyn Fn(&mut TcpStream) -> io::Result<()> + Send + Sync>;

const MB: u64 = 1 << 20;
/// The length of one message.
const LONG: usize = 29_000;
/// The messages before the end of each answer, far fewer than an answer may have.
const MESSAGES: usize = 800;

/// Makes a split whose target sends what it likes, as soon as the worker has its sessions.
fn to_dual_write<'a>(cluster: &'a Cluster, chatty: &ChattyServer) -> Split<'a> {
    let mut master = cluster.superuser().unwrap();
    master.execute("SELECT shard_add('loud', $1)", &[&chatty.conninfo()]).unwrap();
    let split = Split::plan(cluster, "shard_a", "loud", &["moves"]).unwrap();
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    split
}

/// Waits until the split has failed. Returns its error, and the most memory that its worker has had.
fn failure(split: &Split<'_>) -> (String, u64) {
    let mut most = 0;
    let message = wait::until("the split to fail", LIMIT, || {
        most = most.max(split.worker_memory()?.unwrap_or(0));
        assert!(most < 800 * MB, "{} MB", most / MB);
        let query = "SELECT error_message FROM shardmaster.split_plan WHERE id = $1 AND activity = 'failed'";
        Ok(split.superuser()?.query_opt(query, &[&split.id])?.map(|row| row.get::<_, String>(0)))
    });
    (message.unwrap_or_else(|error| panic!("{error}; {}", split.describe())), most)
}

/// No session asks for notifications, so the first one ends it.
#[test]
fn a_notification_that_nobody_asked_for_ends_the_session() {
    let cluster = cluster(&[]);
    let chatty = ChattyServer::before(&cluster.servers[1]).unwrap();
    let split = to_dual_write(&cluster, &chatty);
    let note = message(b'A', &[&[0, 0, 0, 1], b"c\0", &[b'x'; LONG], b"\0"]);
    chatty.says(b'Z', move |client| (0..MESSAGES).try_for_each(|_| client.write_all(&note)));
    split.call("run_backfill").unwrap();
    let (message, most) = failure(&split);
    assert!(
        message.contains("shard \"loud\"") && message.contains("an unexpected notification"),
        "{message}"
    );
    assert!(most < 200 * MB, "{} MB", most / MB);
}

/// Settings that a server reports are kept as long as the session, each by its name. Their total over many
/// answers is limited like a single answer.
#[test]
fn what_stays_of_answers_is_bounded_in_all() {
    let cluster = cluster(&[]);
    let chatty = ChattyServer::before(&cluster.servers[1]).unwrap();
    let split = to_dual_write(&cluster, &chatty);
    let next = AtomicUsize::new(0);
    chatty.says(b'Z', move |client| {
        (0..MESSAGES).try_for_each(|_| {
            let name = format!("p{}\0", next.fetch_add(1, Ordering::Relaxed));
            client.write_all(&message(b'S', &[name.as_bytes(), &[b'x'; LONG], b"\0"]))
        })
    });
    split.call("run_backfill").unwrap();
    let (message, most) = failure(&split);
    assert!(message.contains("shard \"loud\": an answer of more than 256 MB"), "{message}");
    assert!(most < 500 * MB, "{} MB", most / MB);
}

/// Writes 40 rows to the source, for which the target takes 8 s. `turn` is the number of such a batch.
fn more_slow_rows(cluster: &Cluster, turn: usize) {
    let (first, last) = (turn * 40 + 1, turn * 40 + 40);
    run(
        cluster,
        0,
        &format!("INSERT INTO items SELECT 'slow', i, i::text, i FROM generate_series({first}, {last}) i"),
    );
}

/// Makes a split of rows that take long on the target. Meanwhile the source's idle session gets empty queries
/// now and then.
fn of_slow_rows<'a>(cluster: &'a Cluster, chatty: &ChattyServer) -> Split<'a> {
    let mut master = cluster.superuser().unwrap();
    master.execute("SELECT shard_add('loud', $1)", &[&chatty.conninfo()]).unwrap();
    master.batch_execute("SELECT shard_assign('slow', 'loud')").unwrap();
    more_slow_rows(cluster, 0);
    run(
        cluster,
        1,
        "CREATE FUNCTION slow(x text) RETURNS text LANGUAGE plpgsql IMMUTABLE SET search_path = pg_catalog AS
             'BEGIN PERFORM pg_sleep(0.2); RETURN x; END';
         CREATE INDEX ON items (slow(val))",
    );
    let split = Split::plan(cluster, "loud", "shard_b", &["slow"]).unwrap();
    split.accept_remarks().unwrap();
    split.call("start_dual_write").unwrap();
    split.wait("dual_write", LIMIT).unwrap();
    split
}

/// Other answers to an empty query: a wrong one, a flood, or an endless trickle. The session is given up, and
/// the worker continues to react to calls.
#[test]
fn a_sign_of_life_keeps_no_worker_however_it_is_answered() {
    let cluster = cluster(&["shardmaster.remote_timeout = 2s"]);
    let chatty = ChattyServer::before(&cluster.servers[0]).unwrap();
    let split = of_slow_rows(&cluster, &chatty);
    // The kind of the answer to an empty query.
    const NOTHING: u8 = b'I';
    let another = |client: &mut TcpStream| client.write_all(&message(b'H', &[b"\0\0\0"]));
    let much = |client: &mut TcpStream| loop {
        client.write_all(&NOTICE.repeat(20_000))?;
    };
    let little = |client: &mut TcpStream| loop {
        client.write_all(NOTICE)?;
        sleep(Duration::from_millis(100));
    };
    let turns: [(&str, &str, ExtraMessages); 3] = [
        ("run_backfill", "an invalid answer to an empty query", Box::new(another)),
        ("resume", "or one longer than 8 kB", Box::new(much)),
        // This case comes last. It may pass by itself, so that the worker continues, with ever shorter steps.
        ("resume", "no answer within", Box::new(little)),
    ];
    let turns = turns.into_iter().take(at_most(1)).enumerate();
    let rows = 40 * turns.len() as i64;
    for (turn, (call, problem, says)) in turns {
        chatty.says(NOTHING, says);
        // A step with a wrong answer may end, with its rows, before the worker notices the answer.
        if turn > 0 {
            more_slow_rows(&cluster, turn);
        }
        split.call(call).unwrap();
        wait::until("the session to be given up", LIMIT, || {
            let text = split.describe();
            Ok((text.contains("shard \"loud\"") && text.contains(problem)).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{problem}: {error}; {}", split.describe()));
        split.call("pause").unwrap();
        wait::until("the split to rest", LIMIT, || {
            let activity: String = split.metric("activity")?;
            Ok(["paused", "failed"].contains(&activity.as_str()).then_some(()))
        })
        .unwrap_or_else(|error| panic!("{problem}: {error}; {}", split.describe()));
    }
    chatty.says(NOTHING, |_| Ok(()));
    split.call("resume").unwrap();
    split.wait("cutover_pending", LIMIT).unwrap();
    let query = "SELECT count(*) FROM items WHERE tenant = 'slow'";
    let mut target = cluster.servers[1].superuser(DATABASE).unwrap();
    assert_eq!(target.query_one(query, &[]).unwrap().get::<_, i64>(0), rows);
}

/// Endless notices while a session starts, while it is queried, and instead of rows. A query over all shards
/// reports after its timeout that this shard has not answered.
#[test]
#[ignore = "make test-all: questions to all shards; make test has security::compromised_shards::a_call_ends_whatever_a_shard_sends_in_the_place_of_an_answer"]
fn notices_are_no_answer_to_a_question_to_all_shards() {
    let cluster = queries::stage(&[]);
    let chatty = ChattyServer::before(&cluster.servers[1]).unwrap();
    let mut master = cluster.superuser().unwrap();
    let conninfo = chatty.conninfo();
    master.execute("SELECT shard_set_endpoint('shard_b', $1, client_conninfo => $1)", &[&conninfo]).unwrap();
    let mut analyst = queries::analyst(&cluster);
    let question = "SELECT shard_query_json('SELECT count(*) FROM items', timeout => '2s')";
    assert_eq!(analyst.query(question, &[]).unwrap().len(), 2);
    // The notices come before a session's first setting, before the end of an answer, and before the rows of
    // the last one.
    analyst.batch_execute("SET statement_timeout = '20s'").unwrap();
    for before in [b'S', b'C', b'T'] {
        chatty.says(before, |client| {
            loop {
                client.write_all(&NOTICE.repeat(20_000))?;
            }
        });
        let (state, text) = queries::error(&mut analyst, question);
        assert!(text.contains("shard \"shard_b\"") && text.contains("no answer"), "{before}: {state} {text}");
    }
    chatty.says(b'T', |_| Ok(()));
    assert_eq!(analyst.query(question, &[]).unwrap().len(), 2);
}
