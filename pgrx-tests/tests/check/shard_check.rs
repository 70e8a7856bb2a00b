//! The findings of `shard_check` about a shard, also if the shard floods it or lies.

use shardmaster_tests::chatty_server::{ChattyServer, message};
use shardmaster_tests::cluster::{Cluster, DATABASE, MOVER};
use shardmaster_tests::env::at_most;
use shardmaster_tests::fixture::{self, by_superuser, cluster};
use shardmaster_tests::relay::NOTICE;
use shardmaster_tests::standby;
use std::io::Write;
use std::time::{Duration, Instant};

type Row = (String, bool, String, String);

fn checked(cluster: &Cluster, shard: &str) -> Vec<Row> {
    let query = "SELECT item, ok, detail, coalesce(hint, '') FROM shard_check($1)";
    let rows = cluster.superuser().unwrap().query(query, &[&shard]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect()
}

/// Checks that an item is not ok, with this detail and hint.
fn is_wrong(found: &[Row], name: &str, detail: &str, hint: &str) {
    let row = found.iter().find(|row| row.0 == name).unwrap_or_else(|| panic!("{name} is not in {found:?}"));
    assert!(!row.1 && row.2.contains(detail) && row.3.contains(hint), "{row:?}");
}

#[test]
fn what_is_wrong_with_a_shard_is_said_with_what_to_do() {
    let cluster = cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    let standby = standby::start(&cluster.servers[0]).unwrap();
    let add = "SELECT shard_add($1, $2, namespace => $3)";
    let there = cluster.servers[1].conninfo(DATABASE, MOVER);
    master.execute(add, &[&"second", &standby.conninfo(DATABASE, MOVER), &"public"]).unwrap();
    master.execute(add, &[&"void", &there, &"void"]).unwrap();
    is_wrong(&checked(&cluster, "second"), "primary", "standby", "target_session_attrs=read-write");
    is_wrong(&checked(&cluster, "void"), "schema", "no schema void", "CREATE SCHEMA void");
    by_superuser(&cluster, 1, "CREATE SCHEMA void");
    is_wrong(&checked(&cluster, "void"), "schema", "its tables: 0", "GRANT USAGE ON SCHEMA void");
    by_superuser(&cluster, 1, &format!("GRANT USAGE ON SCHEMA void TO {MOVER}"));
    assert!(checked(&cluster, "void").iter().any(|row| row.0 == "schema" && row.1));
    // The clock, and how the server is reached, as the server itself reports them.
    by_superuser(
        &cluster,
        1,
        "CREATE OR REPLACE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
             $$ SELECT pg_catalog.now() + interval '1 hour' $$;
         CREATE OR REPLACE FUNCTION pg_catalog.inet_server_addr() RETURNS inet LANGUAGE sql AS
             $$ SELECT inet '192.0.2.1' $$",
    );
    let found = checked(&cluster, "shard_b");
    is_wrong(&found, "clock", "+36", "NTP");
    is_wrong(&found, "encryption", "none", "sslmode=verify-full");
    // A call with checked => true reports all findings of a shard, and does not add it.
    let call = "SELECT shard_add('third', $1, checked => true)";
    let refused = master.execute(call, &[&there]).unwrap_err();
    let detail = refused.as_db_error().unwrap().detail().unwrap().to_owned();
    assert!(detail.contains("clock: ") && detail.contains("encryption: "), "{detail}");
}

/// The shard's statements about itself are quoted as text of limited length.
#[test]
fn a_shard_that_lies_is_quoted_and_not_believed() {
    let cluster = cluster(&[]);
    for (clock, size) in [
        ("'infinity'::timestamptz", "pg_catalog.repeat('long ', 1000000)"),
        ("'4713-01-01 BC'::timestamptz", r"E'a\e[2Jb\nc\u202ed'"),
        ("NULL::timestamptz", "NULL::text"),
    ] {
        by_superuser(
            &cluster,
            1,
            &format!(
                "CREATE OR REPLACE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT {clock} $$;
                 CREATE OR REPLACE FUNCTION pg_catalog.pg_size_pretty(bigint) RETURNS text LANGUAGE sql AS $$ SELECT {size} $$"
            ),
        );
        let found = checked(&cluster, "shard_b");
        let clock_row = found.iter().find(|row| row.0 == "clock").unwrap();
        assert!(!clock_row.1, "{clock}: {clock_row:?}");
        for row in &found {
            let all = format!("{} {} {}", row.0, row.2, row.3);
            assert!(all.len() < 20_000 && !all.contains(['\u{1b}', '\n', '\u{202e}']), "{all:.200}");
        }
    }
}

/// A flood takes neither much memory nor much time: the check reports it, or a timeout ends the session.
#[test]
fn a_shard_that_floods_keeps_nobody_who_looks_at_it() {
    let cluster = cluster(&["shardmaster.remote_timeout = '3s'"]);
    let chatty = ChattyServer::before(&cluster.servers[1]).unwrap();
    let mut master = cluster.superuser().unwrap();
    master.execute("SELECT shard_add('loud', $1)", &[&chatty.conninfo()]).unwrap();
    let row = message(b'D', &[&[0, 1, 0, 0, 0x70, 0], &[b'x'; 0x7000]]);
    for what in ["notices, slowly", "notices", "rows"].into_iter().take(at_most(1)) {
        let row = row.clone();
        chatty.says(b'C', move |client| {
            loop {
                match what {
                    "notices" => client.write_all(&NOTICE.repeat(20_000))?,
                    "rows" => client.write_all(&row)?,
                    _ => {
                        client.write_all(NOTICE)?;
                        std::thread::sleep(Duration::from_millis(100));
                    }
                }
            }
        });
        let began = Instant::now();
        let pid: i32 = master.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0);
        let said = match master.query("SELECT item, ok, detail FROM shard_check('loud')", &[]) {
            Ok(rows) => {
                assert!(rows.iter().any(|row| !row.get::<_, bool>(1)), "{what}: nothing is wrong");
                rows.iter().map(|row| row.get::<_, String>(2)).collect()
            }
            Err(error) => {
                error.as_db_error().unwrap_or_else(|| panic!("{what}: {error}")).message().to_owned()
            }
        };
        assert!(said.contains("loud"), "{what}: {said}");
        assert!(began.elapsed() < Duration::from_secs(60), "{what}: {:?}", began.elapsed());
        // The session does not keep the memory.
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
        assert!(kilobytes < 700 << 10, "{what}: {kilobytes} kB");
    }
    assert!(fixture::rows(&cluster, 0).len() == 300);
}

/// A disabled trigger lets pass what it should refuse, long after its split has ended.
#[test]
fn triggers_that_are_disabled_are_found() {
    let cluster = cluster(&[]);
    let split = fixture::plan(&cluster);
    split.run(|_| ()).unwrap();
    split.finish(fixture::LIMIT).unwrap();
    assert!(checked(&cluster, "shard_a").iter().all(|row| row.0 != "triggers"));
    by_superuser(&cluster, 0, "ALTER TABLE items DISABLE TRIGGER ALL");
    is_wrong(&checked(&cluster, "shard_a"), "triggers", "on public.items", "ENABLE ALWAYS TRIGGER");
}
