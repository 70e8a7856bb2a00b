//! The refusals that a new operator meets. Each names its reason and its remedy.

use shardmaster_tests::cluster::{Cluster, OWNER};
use shardmaster_tests::fixture::{self, LIMIT, source};
use shardmaster_tests::queries::{error, hint};
use shardmaster_tests::split::Split;
use shardmaster_tests::wait;

/// Returns the statement of the docs with which a superuser hands over the objects of another mover.
fn hand_over() -> String {
    let page = include_str!("../../../docs/operate/roles-and-rights.md");
    let begin = page.find("DO $$\nDECLARE\n    mover regrole").unwrap();
    let end = page[begin..].find("END $$;").unwrap() + begin;
    format!("{}END $$;", &page[begin..end])
}

#[test]
#[ignore = "make test-all: another mover; make test has refusals_name_what_ends_them"]
fn another_mover_is_told_whose_the_agent_is() {
    let cluster = Cluster::namespaces(2, &["fsync = off", "shardmaster.tail_interval = 20"]).unwrap();
    let mut master = cluster.superuser().unwrap();
    for schema in ["shard_a", "shard_b"] {
        master
            .batch_execute(&format!(
                "CREATE TABLE {schema}.items (tenant text, id int, PRIMARY KEY (tenant, id)); ALTER TABLE {schema}.items OWNER TO {OWNER}"
            ))
            .unwrap();
    }
    master
        .batch_execute(
            "INSERT INTO shard_a.items SELECT 'moves', i FROM generate_series(1, 100) i;
             SELECT shard_table_add('items', 'tenant', key_type => 'text'), shard_assign('moves', 'shard_a')",
        )
        .unwrap();
    let mover_is = |role: &str| {
        let mut master = cluster.superuser().unwrap();
        master.batch_execute(&format!("ALTER SYSTEM SET shardmaster.local_user = '{role}'")).unwrap();
        master.batch_execute("SELECT pg_reload_conf()").unwrap();
        let query = format!("SELECT current_setting('shardmaster.local_user') = '{role}'");
        wait::until_true(&mut master, "the setting", LIMIT, &query).unwrap();
        // The worker's sessions belong to another role by now.
        let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'shardmaster%'";
        master.query(end, &[]).unwrap();
    };
    mover_is("postgres");
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves"]).unwrap();
    fixture::to_pending(&split);
    mover_is("mover");
    let mut master = cluster.superuser().unwrap();
    let cleanup = "SELECT * FROM shard_cleanup('shard_b')";
    let (state, message) = error(&mut master, cleanup);
    assert_eq!(
        (state.as_str(), message.as_str()),
        (
            "42501",
            "shard \"shard_b\": role mover cannot use schema shardmaster_agent, which belongs to role postgres"
        )
    );
    let hint_of_it = hint(&mut master, cleanup);
    assert!(
        hint_of_it.contains("shardmaster.local_user") && hint_of_it.contains("Another mover"),
        "{hint_of_it}"
    );
    master.batch_execute(&hand_over()).unwrap();
    let resume = format!("SELECT shard_split_resume({})", split.id);
    let _ = master.batch_execute(&resume);
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
    let moved = "SELECT count(*) FROM shard_b.items";
    assert_eq!(master.query_one(moved, &[]).unwrap().get::<_, i64>(0), 100);
}

#[test]
fn refusals_name_what_ends_them() {
    let cluster = fixture::cluster(&[]);
    let mut master = cluster.superuser().unwrap();
    // Even a superuser has no login.
    let copy = "SELECT * FROM shard_schema_copy('shard_a', 'shard_b')";
    assert_eq!(error(&mut master, copy).0, "42501");
    let hint_of_it = hint(&mut master, copy);
    assert!(hint_of_it.contains("SELECT shard_login_set('postgres', username => '"), "{hint_of_it}");
    // The prepared transaction that delays a rollback is named.
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves"]).unwrap();
    fixture::to_pending(&split);
    let mut client = source(&cluster);
    client
        .batch_execute("BEGIN; UPDATE items SET code = code WHERE tenant = 'stays' AND id = 1; PREPARE TRANSACTION 'stuck'")
        .unwrap();
    split.call("rollback").unwrap();
    let waits = format!(
        "SELECT waiting_for LIKE '%prepared transaction ''stuck'', open for%' FROM shard_split_metrics({})",
        split.id
    );
    wait::until_true(&mut master, "the prepared transaction's name", LIMIT, &waits).unwrap();
    client.batch_execute("COMMIT PREPARED 'stuck'").unwrap();
    split.wait("rolled_back", LIMIT).unwrap();
    // The shard is empty but still redirects.
    let split = Split::plan(&cluster, "shard_a", "shard_b", &["moves", "stays"]).unwrap();
    split.run(|_| ()).unwrap();
    split.finish(LIMIT).unwrap();
    let failed = master.batch_execute("SELECT shard_drop('shard_a')").unwrap_err();
    let failed = failed.as_db_error().unwrap();
    let detail = failed.detail().unwrap_or_default();
    assert!(detail.starts_with(&format!("split {} since 20", split.id)), "{detail}");
    let call = format!("SELECT shard_split_redirect_drop({})", split.id);
    assert!(failed.hint().unwrap_or_default().contains(&call), "{failed:?}");
    master.batch_execute(&call).unwrap();
    wait::until("the redirect's end", LIMIT, || {
        Ok(master.batch_execute("SELECT shard_drop('shard_a')").ok())
    })
    .unwrap();
}
