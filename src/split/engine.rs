//! The sessions and statements with which a split's steps are carried out.

use super::copy::columns::{self, Pair, Source};
use super::copy::counters::Counters;
use super::copy::sieve::Mesh;
use super::owners::LookedThrough;
use super::plan::check::plain;
use super::references::Watched;
use crate::agent;
use crate::agent::error::{Result, SplitError};
use crate::agent::session::{self, Side};
use crate::agent::shape::{Column, Observation, TableShape};
use crate::catalog::split::{Plan, Policy};
use crate::error::SqlState;
use crate::remote::copy::Bounds;
pub use crate::remote::quote::text_array;
use crate::remote::quote::{array_of, ident, literal};
use crate::remote::{Connection, RemoteError};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// One table of the split, as both sides have it.
pub struct Table {
    pub policy: Policy,
    pub source: TableShape,
    pub target: TableShape,
    /// The shard-by column on the source and on the target.
    pub source_by: Column,
    pub target_by: Column,
    pub queue: String,
    /// What fills which column of the target, and how the two differ in what is refused.
    pub pairs: Vec<Pair>,
    pub differences: Vec<String>,
    /// That of both databases, where it is the same and not UTF-8: texts come over as
    /// they are.
    pub encoding: Option<String>,
    /// What rows on their way are held to; None: the target sees to it.
    pub mesh: Option<Rc<Mesh>>,
}

impl Table {
    /// What is selected of a row `t` of the source, in copy and tail alike.
    pub fn select_list(&self) -> String {
        self.pairs.iter().map(Pair::select).collect::<Vec<_>>().join(", ")
    }

    /// The target's table without what inherits from it, whose rows are not the split's.
    pub fn target_only(&self) -> String {
        let only = if self.target.is_partitioned() { "" } else { "ONLY " };
        format!("{only}{}", self.target.name)
    }

    /// The columns of the target that it fills.
    pub fn target_columns(&self) -> String {
        let names: Vec<String> = self.pairs.iter().map(|pair| pair.target.clone()).collect();
        crate::remote::quote::idents("", &names)
    }

    /// How rows are written, in copy and tail alike: binary where every type has one
    /// form on all servers, else text.
    pub fn format(&self) -> String {
        if self.is_binary() { "FORMAT binary".to_owned() } else { self.text_format() }
    }

    pub fn is_binary(&self) -> bool {
        let is_same = |pair: &Pair| match &pair.source {
            Source::Expression(_) => false,
            Source::Column(name) => self.source.column(name).is_some_and(|from| {
                let to = self.target.column(&pair.target);
                from.is_binary() && to.is_some_and(|to| to.is_binary() && to.base == from.base)
            }),
        };
        // Texts within the binary form would be converted all the same.
        self.encoding.is_none() && self.pairs.iter().all(is_same)
    }

    /// How keys of a window are written.
    pub fn text_format(&self) -> String {
        match &self.encoding {
            Some(encoding) => format!("FORMAT text, ENCODING {}", literal(encoding)),
            None => "FORMAT text".to_owned(),
        }
    }

    /// Whether the equality of each column of the key is that of its bytes.
    fn has_plain_key(&self) -> bool {
        let is_plain = |name: &String| self.source.column(name).is_some_and(Column::is_plain_key);
        self.source.key().iter().all(is_plain)
    }

    /// The keys of a window, each image once: a type's own equality would take two for
    /// one that need not be one on the other side.
    pub fn window(&self, condition: &str) -> String {
        let keys = agent::queue_keys(&self.source).join(", ");
        let from = format!("FROM {} WHERE op <> 'T' AND {condition}", self.queue);
        if self.has_plain_key() {
            format!("SELECT DISTINCT {keys} {from}")
        } else {
            format!(
                "SELECT DISTINCT ON (ROW({keys})) {keys} {from} ORDER BY ROW({keys}) USING OPERATOR(pg_catalog.*<)"
            )
        }
    }

    /// The rows `t` of the source whose keys are in a window, each once; what follows is
    /// one more condition.
    pub fn changed_rows(&self, condition: &str) -> String {
        let name = &self.source.name;
        if self.has_plain_key() {
            // By names that no expression over the row means.
            let keys: Vec<String> =
                (1..=self.source.key().len()).map(|n| format!("\"shardmaster key {n}\"")).collect();
            let window = self.window(condition);
            return format!(
                "{name} t JOIN ({window}) k ({}) ON {} WHERE true",
                keys.join(", "),
                key_join(&self.source, "k", &keys)
            );
        }
        format!(
            "{name} t WHERE EXISTS (SELECT FROM {} k WHERE k.op <> 'T' AND {condition} AND {})",
            self.queue,
            key_join(&self.source, "k", &agent::queue_keys(&self.source))
        )
    }

    /// The rows `t` of the target are those of the keys `k` of a window.
    pub fn target_join(&self) -> String {
        key_join(&self.target, "k", &agent::queue_keys(&self.source))
    }

    /// A noted key `g` of the target beside a key `k` of the window.
    pub fn gone_join(&self) -> String {
        agent::queue_keys(&self.source)
            .iter()
            .zip(self.target.key_operators())
            .map(|(key, operator)| format!("g.{key} {operator} k.{key}"))
            .collect::<Vec<_>>()
            .join(" AND ")
    }

    /// The temporary table on the target that takes the keys of a window.
    pub fn window_table(&self) -> String {
        format!("pg_temp.window_{}", self.policy.ordinal)
    }
}

/// `t.key = k.k1 AND ...`, each by the equality that the key's own index goes by.
fn key_join(shape: &TableShape, window: &str, keys: &[String]) -> String {
    shape
        .key()
        .iter()
        .zip(shape.key_operators())
        .zip(keys)
        .map(|((column, operator), key)| format!("t.{} {operator} {window}.{key}", ident(column)))
        .collect::<Vec<_>>()
        .join(" AND ")
}

/// Sessions and tables of an installed split.
pub struct Engine {
    pub plan: Plan,
    pub generation: i64,
    /// Reads the source, one snapshot a step.
    pub reader: Connection,
    /// Writes the agent's tables on the source.
    pub control: Connection,
    /// Writes the target.
    pub target: Connection,
    pub tables: Vec<Table>,
    /// Foreign keys of the target that the server does not check for the mover.
    pub watched: Watched,
    /// What code of others was looked for in.
    pub looked_through: LookedThrough,
    /// The partitioned tables of the source, as it was observed last.
    pub parents: Vec<String>,
    /// As the last step has read them.
    pub counters: Counters,
    /// Blocks of the next chunk; 0: no step has said it yet.
    pub chunk_blocks: i64,
    /// The next step is a cutover's last, and this run of the master may decide.
    pub deciding: Option<String>,
    /// Bytes of a window's rows; None: as many as there are.
    pub window_limit: Option<u64>,
    /// Time that a message and its answer take, to the shard that is further away.
    pub distance: Duration,
}

/// Bounds of a copy that brings over whatever there is. A server that sorts or waits for
/// its disk sends nothing for long; a link that is cut is noticed earlier by the system.
pub fn unbounded() -> Bounds {
    Bounds { patience: crate::guc::remote_timeout() * 10, bytes: None }
}

impl Engine {
    /// Takes over both sides of an installed split.
    pub fn attach(plan: Plan, generation: i64, identity: &str) -> Result<Engine> {
        let mut target = session::open_mover(&plan, Side::Target, "writer")?;
        let mut control = session::open_mover(&plan, Side::Source, "control")?;
        session::check_identity(&mut target, identity)?;
        session::check_identity(&mut control, identity)?;
        session::take_over(&mut target, &plan, Side::Target, generation)?;
        session::take_over(&mut control, &plan, Side::Source, generation)?;
        let mut reader = session::open_mover(&plan, Side::Source, "reader")?;
        session::require_one_server(&mut reader, &mut control)?;
        session::register(&mut target, &plan, Side::Target)?;
        session::register(&mut control, &plan, Side::Source)?;
        session::register(&mut reader, &plan, Side::Source)?;
        let tables = describe(&plan, &mut reader, &mut target)?;
        let watched = Watched::load(&mut target, &plan, &tables)?;
        let distance = distance(&mut reader)?.max(distance(&mut target)?);
        let mut engine = Engine {
            plan,
            generation,
            reader,
            control,
            target,
            tables,
            watched,
            looked_through: LookedThrough::default(),
            parents: Vec::new(),
            counters: Counters::default(),
            chunk_blocks: 0,
            deciding: None,
            window_limit: None,
            distance,
        };
        engine.create_window_tables()?;
        Ok(engine)
    }

    fn create_window_tables(&mut self) -> Result<()> {
        self.target.run(&agent::stray(&self.plan))?;
        for table in &self.tables {
            let keys: Vec<String> = table
                .target
                .key()
                .iter()
                .zip(agent::queue_keys(&table.source))
                .map(|(column, key)| format!("{} AS {key}", ident(column)))
                .collect();
            self.target.run(&format!(
                "CREATE TEMPORARY TABLE window_{} ON COMMIT DELETE ROWS AS SELECT {} FROM {} WITH NO DATA",
                table.policy.ordinal,
                keys.join(", "),
                table.target.name
            ))?;
        }
        Ok(())
    }

    /// No answer is waited for past the deadline.
    pub fn set_deadline(&mut self, deadline: Option<Instant>) {
        for session in [&mut self.reader, &mut self.control, &mut self.target] {
            session.set_deadline(deadline);
        }
    }

    /// Runs statements on the source's control session in one transaction that the
    /// generation allows.
    pub fn control_transaction(&mut self, statements: &str) -> Result<()> {
        let id = self.plan.id;
        begin_as(&mut self.control, id, Side::Source, self.generation)?;
        match self.control.run(statements).and_then(|_| self.control.run("COMMIT")) {
            Ok(_) => Ok(()),
            Err(error) => {
                let _ = self.control.run("ROLLBACK");
                Err(error.into())
            }
        }
    }
}

/// Of three, the fastest: a server that is busy is not far away.
fn distance(connection: &mut Connection) -> Result<Duration> {
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let began = Instant::now();
        connection.run("SELECT 1")?;
        fastest = fastest.min(began.elapsed());
    }
    Ok(fastest)
}

/// Begins a transaction in which this worker's generation cannot be overtaken: the
/// next worker's update of the row waits for its end.
pub fn begin_as(connection: &mut Connection, split: i64, side: Side, generation: i64) -> Result<()> {
    connection.run("BEGIN")?;
    let rows = connection.run(&format!(
        "SELECT 1 FROM shardmaster_agent.generation
          WHERE split_id = {split} AND side = {} AND generation = {generation} FOR SHARE",
        literal(side.as_str())
    ))?;
    if rows.rows.is_empty() {
        let _ = connection.run("ROLLBACK");
        return Err(SplitError::Superseded);
    }
    Ok(())
}

/// What a shard's tables look like now, in the session's snapshot.
pub fn observe(connection: &mut Connection, plan: &Plan, side: Side) -> Result<Observation> {
    let (schemas, names) = table_names(plan, side);
    let functions: Vec<String> =
        plan.tables.iter().map(|t| agent::trigger_function(plan.id, side, t.ordinal)).collect();
    let columns: Vec<String> = plan.tables.iter().map(|t| t.shard_by.clone()).collect();
    let named = computed_names(plan, side);
    let rows = connection.query_prepared(
        "observe",
        &agent::OBSERVE,
        &[
            Some(&text_array(&schemas)),
            Some(&text_array(&names)),
            Some(&agent::trigger_prefix(plan.id, side)),
            Some(&text_array(&functions)),
            Some(&text_array(&columns)),
            Some(&named[0]),
            Some(&named[1]),
        ],
    )?;
    let shard = connection.shard().to_owned();
    let json = rows.scalar().unwrap_or_default();
    serde_json::from_str(json)
        .map_err(|e| SplitError::Remote(RemoteError::connection(&shard, format!("unexpected answer: {e}"))))
}

/// Schemas and names of the tables on a side.
pub fn table_names(plan: &Plan, side: Side) -> (Vec<String>, Vec<String>) {
    let namespace = match side {
        Side::Source => &plan.source.namespace,
        Side::Target => &plan.target.namespace,
    };
    let schemas = plan.tables.iter().map(|t| t.schema.clone().unwrap_or_else(|| namespace.clone())).collect();
    (schemas, plan.tables.iter().map(|t| t.name.clone()).collect())
}

/// What computed columns name in schemas, which their text may mean anew each time: schemas
/// and names, as parameters. The source alone reads these texts.
pub fn computed_names(plan: &Plan, side: Side) -> [String; 2] {
    let maps = plan.tables.iter().flat_map(|table| &table.maps);
    let texts = maps.filter_map(|map| map.expression.as_deref()).filter(|_| side == Side::Source);
    name_lists(&texts.filter_map(plain::qualified).flatten().collect::<Vec<_>>())
}

/// Names as two lists, of schemas and of what is in them.
pub fn name_lists(named: &[plain::Qualified]) -> [String; 2] {
    [
        array_of(named.iter().map(|named| Some(named.schema.as_str()))),
        array_of(named.iter().map(|named| named.name.as_deref())),
    ]
}

/// Observes both sides and pairs their tables.
pub fn describe(plan: &Plan, source: &mut Connection, target: &mut Connection) -> Result<Vec<Table>> {
    let on_source = observe(source, plan, Side::Source)?;
    let on_target = observe(target, plan, Side::Target)?;
    let is_same = on_source.encoding == on_target.encoding && on_source.encoding != "UTF8";
    let encoding = is_same.then_some(on_source.encoding);
    plan.tables
        .iter()
        .zip(on_source.tables.into_iter().zip(on_target.tables))
        .map(|(policy, (source, target))| {
            let mut table = Table { encoding: encoding.clone(), ..pair(plan, policy, source, target)? };
            table.mesh = Mesh::new(plan, &table).map(Rc::new);
            Ok(table)
        })
        .collect()
}

fn pair(plan: &Plan, policy: &Policy, source: TableShape, target: TableShape) -> Result<Table> {
    let missing = |shard: &str, what: &str| {
        SplitError::failed(
            SqlState::parse("42P01"),
            format!("table {}: {what} on shard \"{shard}\"", policy.table_name),
            format!("SELECT * FROM shard_split_check({}) lists everything that is in the way.", plan.id),
        )
    };
    for (shape, shard) in [(&source, &plan.source.shard_key), (&target, &plan.target.shard_key)] {
        if shape.oid.is_none() {
            return Err(missing(shard, "does not exist"));
        }
        if shape.key().is_empty() {
            return Err(missing(shard, "has no primary key"));
        }
    }
    let by = |shape: &TableShape, shard: &str| {
        shape
            .column(&policy.shard_by)
            .cloned()
            .ok_or_else(|| missing(shard, &format!("has no column \"{}\"", policy.shard_by)))
    };
    let source_by = by(&source, &plan.source.shard_key)?;
    let target_by = by(&target, &plan.target.shard_key)?;
    let queue = format!("shardmaster_agent.{}", agent::queue_table(plan.id, policy.ordinal));
    let fixed: Vec<&str> =
        target.key().iter().map(String::as_str).chain([policy.shard_by.as_str()]).collect();
    let pairing = columns::pair(&source, &target, &policy.maps, &fixed);
    let mut differences: Vec<String> =
        pairing.differences.into_iter().filter(|d| !d.ok).map(|d| d.text).collect();
    if source.key() != target.key() {
        differences.push(format!(
            "primary key ({}) on the source, ({}) on the target",
            source.key().join(", "),
            target.key().join(", ")
        ));
    }
    Ok(Table {
        policy: policy.clone(),
        source,
        target,
        source_by,
        target_by,
        queue,
        pairs: pairing.pairs,
        differences,
        encoding: None,
        mesh: None,
    })
}
