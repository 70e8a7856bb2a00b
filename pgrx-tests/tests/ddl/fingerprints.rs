//! Fingerprints of tables. One number says whether tables may have changed since they were looked at. It
//! changes with anything that the look has read, and does not change otherwise.

use postgres::{Client, SimpleQueryMessage};
use shardmaster_tests::server::Server;

const SETUP: &str = include_str!("../../sql/fingerprints.sql");
const CHANGES: &str = include_str!("../../sql/fingerprints_changes.sql");
const HARMLESS: &str = include_str!("../../sql/fingerprints_harmless.sql");

const STAMP: &str = include_str!("../../../sql/agent/stamp.sql");
const OBSERVE: &str = include_str!("../../../sql/agent/observe.sql");
const CODE: &str = include_str!("../../../sql/agent/code.sql");
const FACTS: &str = include_str!("../../../sql/agent/code_facts.sql");
const REACHES: &str = include_str!("../../../sql/agent/reaches.sql");
const WHOLE: &str = include_str!("../../../sql/agent/whole.sql");
const GENERATED: &str = include_str!("../../../sql/agent/generated.sql");

/// The lists of a look, in its order.
const LISTS: [&str; 11] = [
    "relations",
    "types",
    "functions",
    "operators",
    "classes",
    "collations",
    "schemas",
    "owners",
    "sequences",
    "spaces",
    "words",
];

/// The prefix of the names of the split's triggers.
const PREFIX: &str = "shardmaster_1_s_";

/// Returns the query of the number over lists, each of which `list` makes of its name and position.
fn number(list: impl Fn(&str, usize) -> String, prefix: &str) -> String {
    LISTS.iter().zip(1..).fold(STAMP.replace("{prefix}", prefix), |text, (name, place)| {
        let of = if place > 9 { "name" } else { "oid" };
        text.replace(&format!("{{{name}}}"), &format!("{}::{of}[]", list(name, place)))
    })
}

/// Returns the look of a split's worker at four tables, one of which has texts that name other objects.
fn look() -> String {
    let code = CODE
        .replace("{reaches}", REACHES)
        .replace("{whole}", WHOLE)
        .replace("{generated}", GENERATED)
        .replace("{members}", "(SELECT m.oids FROM member m)::oid[]")
        .replace("{columns}", "$8")
        .replace("{schemas}", "$6")
        .replace("{names}", "$7")
        .replace("{answer}", FACTS);
    let query = OBSERVE
        .replace("{depth}", "64")
        .replace("{parts}", "20000")
        .replace("{code}", &code)
        .replace("{server}", "''")
        .replace("{stamp}", &number(|name, _| format!("(SELECT k.{name} FROM kin k)"), "$3"));
    let parameters = [
        "{app,app,app,app}",
        "{t,p,q,g}",
        PREFIX,
        "{capture_1,capture_1,capture_1,capture_1}",
        "{tenant,tenant,tenant,tenant}",
        "{kinds,kinds}",
        "{named,NULL}",
        "{tenant,tenant,tenant,tenant}",
    ];
    let of = |text: String, (place, value): (usize, &&str)| {
        text.replace(&format!("${}", place + 1), &format!("'{value}'"))
    };
    let query = parameters.iter().enumerate().rev().fold(query, of);
    let lists: Vec<String> = (0..LISTS.len()).map(|place| format!("seen -> 'kin' ->> {place}")).collect();
    let tables =
        "(SELECT count(*) FROM json_array_elements(seen -> 'tables') t WHERE t ->> 'oid' IS NOT NULL)";
    format!("SELECT seen ->> 'stamp', {tables}, {} FROM ({query}) AS look (seen)", lists.join(", "))
}

/// The result of a look at the tables.
struct Observation {
    lists: Vec<Option<String>>,
    stamp: String,
    tables: String,
}

struct Observer {
    session: Client,
    look: String,
}

impl Observer {
    fn of(server: &Server) -> Observer {
        let mut session = server.superuser("postgres").unwrap();
        let pinned =
            "SET search_path = pg_catalog, pg_temp; SET enable_hashjoin = off; SET enable_mergejoin = off;
             SET join_collapse_limit = 1; SET from_collapse_limit = 1; SET jit = off";
        session.batch_execute(pinned).unwrap();
        let ask = number(|_, place| format!("${place}"), &format!("'{PREFIX}'"));
        session.batch_execute(&format!("PREPARE number AS SELECT {ask}")).unwrap();
        Observer { session, look: look() }
    }

    fn row(&mut self, query: &str) -> Vec<Option<String>> {
        let answer = self.session.simple_query(query).unwrap();
        let row = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => {
                Some((0..row.len()).map(|at| row.get(at).map(str::to_owned)).collect())
            }
            _ => None,
        };
        answer.iter().find_map(row).unwrap()
    }

    fn look(&mut self) -> Observation {
        let mut row = self.row(&self.look.clone());
        let lists = row.split_off(2);
        let [stamp, tables] = row.try_into().unwrap();
        Observation { lists, stamp: stamp.unwrap(), tables: tables.unwrap() }
    }

    /// Returns the current number over the lists of an earlier look.
    fn number(&mut self, seen: &Observation) -> String {
        let quoted =
            |list: &Option<String>| list.as_ref().map_or("NULL".to_owned(), |list| format!("'{list}'"));
        let lists: Vec<String> = seen.lists.iter().map(quoted).collect();
        self.row(&format!("EXECUTE number({})", lists.join(", "))).swap_remove(0).unwrap()
    }
}

/// Runs each statement of a line by itself.
fn execute(session: &mut Client, line: &str) {
    for statement in line.split("; ") {
        session.batch_execute(statement).map_err(|error| format!("{statement}: {error}")).unwrap();
    }
}

#[test]
fn what_a_look_was_read_from_has_another_number_once_it_changes() {
    let server = Server::start("looked", &["fsync = off", "max_prepared_transactions = 2"]).unwrap();
    let mut owner = server.superuser("postgres").unwrap();
    owner.batch_execute(SETUP).unwrap();
    owner.batch_execute("SET client_min_messages = error").unwrap();
    owner.batch_execute("VACUUM ANALYZE").unwrap();
    let mut looker = Observer::of(&server);
    let mut seen = looker.look();
    assert_eq!(looker.number(&seen), seen.stamp);
    for line in HARMLESS.lines() {
        execute(&mut owner, line);
        assert_eq!(looker.number(&seen), seen.stamp, "{line}");
    }
    for line in CHANGES.lines() {
        execute(&mut owner, line);
        assert_ne!(looker.number(&seen), seen.stamp, "{line}");
        seen = looker.look();
        assert_eq!((&looker.number(&seen), &*seen.tables), (&seen.stamp, "4"), "{line}");
    }
}
