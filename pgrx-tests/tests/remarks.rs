//! Remarks of a check: what its operator has to accept by name, before anything moves.

use postgres::Client;
use shardmaster_tests::Error;
use shardmaster_tests::fixture::{LIMIT, by_superusers, cluster, plan, source};
use shardmaster_tests::split::Split;

type Row = (String, bool, String, String, String);

fn remarks(master: &mut Client, split: &Split<'_>) -> Vec<Row> {
    let query =
        "SELECT check_name, ok, object, detail, hint FROM shard_split_check($1) WHERE object IS NOT NULL
                  ORDER BY object COLLATE \"C\"";
    let rows = master.query(query, &[&split.id]).unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4))).collect()
}

fn refused(master: &mut Client, query: &str) -> Error {
    Error::from(master.batch_execute(query).unwrap_err())
}

/// Types by which a server names its own transactions, rows, log and catalog, in whatever they are, and large objects.
const COLUMNS: &str = "
    CREATE EXTENSION lo SCHEMA pg_catalog;
    CREATE DOMAIN public.mark AS xid8;
    CREATE TYPE public.pair AS (a int, b txid_snapshot);
    GRANT USAGE ON TYPE public.mark, public.pair TO PUBLIC;
    ALTER TABLE items ADD COLUMN seen mark, ADD COLUMN \"At\" pg_lsn[], ADD COLUMN both_of pair, ADD COLUMN c tid,
        ADD COLUMN kind regclass, ADD COLUMN number oid, ADD COLUMN body lo, ADD COLUMN photo oid, ADD COLUMN plain xid;
    CREATE TRIGGER body BEFORE UPDATE OR DELETE ON items FOR EACH ROW EXECUTE FUNCTION lo_manage(body)";

#[test]
fn what_means_something_on_one_server_is_accepted_by_name() {
    let cluster = cluster(&[]);
    by_superusers(&cluster, COLUMNS);
    // Of the photos three are rows' that move, and one of them is in two rows.
    source(&cluster)
        .batch_execute(
            "SELECT lo_create(70000 + i) FROM generate_series(1, 5) i;
             UPDATE items SET photo = 70000 + CASE WHEN id <= 8 THEN id / 2 ELSE 4 END WHERE id IN (2, 3, 4, 6, 100);
             UPDATE items SET number = 17, kind = 'items', plain = '7' WHERE id = 2",
        )
        .unwrap();
    let mut master = cluster.superuser().unwrap();
    let split = plan(&cluster);
    let map = "SELECT shard_split_map($1, 'items', 'plain', 'plain::text::xid')";
    master.execute(map, &[&split.id]).unwrap();
    let found = remarks(&mut master, &split);
    let (values, large) = ("source: values of one server", "source: large objects");
    let names: Vec<(&str, &str)> = found.iter().map(|row| (row.0.as_str(), row.2.as_str())).collect();
    let wanted = [
        (values, "items.\"At\""),
        (large, "items.body"),
        (values, "items.both_of"),
        (values, "items.c"),
        (values, "items.kind"),
        (values, "items.number"),
        (large, "items.photo"),
        (values, "items.seen"),
    ];
    assert_eq!(names, wanted, "{found:#?}");
    assert!(found.iter().all(|row| !row.1 && row.4.contains("shard_split_accept(")), "{found:#?}");
    assert!(found[6].3.contains("names 4 large objects"), "{:?}", found[6]);
    // Nothing is on a shard until each of them is accepted.
    let error = split.run(|_| ()).unwrap_err();
    assert!(error.to_string().contains("the check has found 8 problems"), "{error}");
    let agent = "SELECT to_regnamespace('shardmaster_agent') IS NULL";
    assert!(source(&cluster).query_one(agent, &[]).unwrap().get::<_, bool>(0));
    let id = split.id;
    let unknown =
        refused(&mut master, &format!("SELECT shard_split_accept({id}, 'source: right to own', 'items')"));
    assert_eq!(unknown.sqlstate(), Some("22023"), "{unknown}");
    let missing =
        refused(&mut master, "SELECT shard_split_accept(4711, 'source: large objects', 'items.body')");
    assert_eq!(missing.sqlstate(), Some("42704"), "{missing}");
    // As its hint says, and all others by their names; what is accepted of nothing is said.
    let hint = &found[0].4;
    master.batch_execute(hint.split_once(": ").unwrap().1.trim_end_matches('.')).unwrap();
    split.accept_remarks().unwrap();
    let nothing = format!("SELECT shard_split_accept({id}, '{values}', 'items.nothing')");
    master.batch_execute(&nothing).unwrap();
    assert!(remarks(&mut master, &split).iter().all(|row| row.1 && row.4.starts_with("Accepted by ")));
    let notes = "SELECT detail FROM shard_split_check($1) WHERE check_name = 'accepted remarks'";
    assert_eq!(
        master.query_one(notes, &[&id]).unwrap().get::<_, String>(0),
        "source: values of one server: items.nothing"
    );
    assert!(split.events().unwrap().contains("accepted: source: values of one server, items.\"At\""));
    split.run(|_| ()).unwrap();
    let late = refused(&mut master, &nothing);
    assert_eq!(late.sqlstate(), Some("55000"), "{late}");
    split.finish(LIMIT).unwrap();
    // A way back asks nobody again, and what was rolled back remembers what was accepted.
    let back = Split::plan(&cluster, "shard_b", "shard_a", &["moves"]).unwrap();
    back.accept_remarks().unwrap();
    let refusals =
        |back: &Split<'_>| back.findings().unwrap().iter().filter(|f| f.contains("one server")).count();
    assert_eq!(refusals(&back), 0);
    back.call("rollback").unwrap();
    back.wait("rolled_back", LIMIT).unwrap();
    assert_eq!(refusals(&back), 0);
}
