//! Paths and options that the scripts pass in the environment.

use crate::cluster::{self, DATABASE};
use crate::{Result, wait};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Returns the directory of the programs of the PostgreSQL under test.
pub fn bindir() -> Result<PathBuf> {
    required("SHARDMASTER_BINDIR")
}

/// Returns the directory of the programs of another major version, which has server programs and no clients.
pub fn bindir_of(major: u32) -> Result<PathBuf> {
    Ok(required("SHARDMASTER_MAJORS")?.join(major.to_string()).join("bin"))
}

/// How long the compiler may take for another version while tests run.
const BUILD_LIMIT: Duration = Duration::from_secs(1200);

/// Returns the directory of the programs of another major version that has the extension. Waits until the
/// extension is built, because tests run while the script builds.
pub fn bindir_built(major: u32) -> Result<PathBuf> {
    let built = required("SHARDMASTER_BUILT")?.join(major.to_string());
    let failed = built.with_extension("failed");
    wait::until(&format!("the build for PostgreSQL {major}"), BUILD_LIMIT, || {
        if failed.exists() {
            return Err(format!("the build for PostgreSQL {major} failed").into());
        }
        Ok(built.exists().then(|| built.join("bin")))
    })
}

/// Whether this is a run of `make test-all`, which takes hours and runs everything.
pub fn is_long_run() -> bool {
    std::env::var_os("SHARDMASTER_SOAK").is_some()
}

/// Returns how many of several cases are tried. A long run tries all of them.
pub fn at_most(count: usize) -> usize {
    if is_long_run() { usize::MAX } else { count }
}

/// Whether the server under test comes from a package that may lack features.
pub fn may_lack() -> bool {
    std::env::var_os("SHARDMASTER_MAY_LACK").is_some()
}

/// Returns the directory below which servers are made.
pub fn run_dir() -> Result<PathBuf> {
    required("SHARDMASTER_RUN_DIR")
}

/// Returns the path of a program of this crate.
pub fn program(name: &str) -> Result<PathBuf> {
    Ok(required("SHARDMASTER_PROGRAMS")?.join(name))
}

fn required(variable: &str) -> Result<PathBuf> {
    let value = std::env::var_os(variable)
        .ok_or_else(|| format!("{variable} is not set; run `make test`, `make demo` or `make bench`"))?;
    Ok(PathBuf::from(value))
}

/// Runs a program to its end. If it fails, its output is the error.
pub fn run(command: &mut Command) -> Result<String> {
    let output = command.output().map_err(|e| format!("cannot run {command:?}: {e}"))?;
    if !output.status.success() {
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        return Err(format!("{command:?} failed: {}\n{out}{err}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The cluster that servers are copied from. Each run makes it once for the programs in a directory. It has
/// no WAL, so each copy makes its own.
#[derive(Clone, Copy)]
pub enum Template {
    /// A cluster with the database and the roles that all servers have.
    Plain,
    /// A cluster that also has the extension, its identity, and the rights of clients.
    Master,
}

impl Template {
    fn name(self) -> &'static str {
        match self {
            Template::Plain => "template",
            Template::Master => "master",
        }
    }

    /// Returns the cluster, and makes it if it does not exist yet.
    fn made(self, bindir: &Path) -> Result<PathBuf> {
        let name = bindir.to_string_lossy().replace('/', "-");
        let template = run_dir()?.join(format!("{}{name}", self.name()));
        if template.exists() {
            return Ok(template);
        }
        // Another test may be making it. If each test made its own, it would cost as much as a dozen copies.
        let making = File::create(run_dir()?.join(format!("{}.lock", self.name())))?;
        making.lock()?;
        if template.exists() {
            return Ok(template);
        }
        let own = run_dir()?.join(format!("{}.made{name}", self.name()));
        match self {
            Template::Plain => {
                initdb(bindir, &own)?;
                // pg_dump and pg_upgrade treat an object with a number below 16384 as the server's own. A
                // server in single-user mode assigns such numbers.
                run(Command::new(bindir.join("pg_resetwal")).args(["-f", "-o", "16384"]).arg(&own))?;
                let version = std::fs::read_to_string(own.join("PG_VERSION"))?;
                let version = version.trim().parse().map_err(|e| format!("PG_VERSION {version}: {e}"))?;
                single(bindir, &own, "postgres", &[], &cluster::preparations(version))?;
            }
            Template::Master => {
                copy(&Template::Plain.made(bindir)?, &own)?;
                run(Command::new(bindir.join("pg_resetwal")).arg("-f").arg(&own))?;
                let database = format!("shardmaster.database={DATABASE}");
                let settings = ["shared_preload_libraries=shardmaster", database.as_str()];
                single(bindir, &own, DATABASE, &settings, &cluster::EXTENSION.map(str::to_owned))?;
            }
        }
        forget_wal(&own)?;
        std::fs::rename(&own, &template)?;
        Ok(template)
    }
}

/// Runs statements in a server in single-user mode, which reads one statement per line.
fn single(
    bindir: &Path,
    data: &Path,
    database: &str,
    settings: &[&str],
    statements: &[String],
) -> Result<()> {
    let file = data.join("prepare.sql");
    let lines: Vec<String> = statements.iter().map(|statement| statement.replace('\n', " ")).collect();
    std::fs::write(&file, lines.join(";\n") + "\n")?;
    let mut server = Command::new(bindir.join("postgres"));
    server.args(["--single", "-c", "exit_on_error=on", "-c", "log_min_messages=error"]);
    for setting in settings {
        server.args(["-c", setting]);
    }
    run(server.arg("-D").arg(data).arg(database).stdin(Stdio::from(File::open(&file)?)))?;
    Ok(std::fs::remove_file(file)?)
}

fn forget_wal(data: &Path) -> Result<()> {
    for entry in std::fs::read_dir(data.join("pg_wal"))? {
        let path = entry?.path();
        if path.is_file() {
            std::fs::remove_file(path)?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp").args(["-a", "--reflink=auto"]).arg(from).arg(to)).map(drop)
}

/// Makes an empty cluster with the programs in `bindir`.
pub fn initdb(bindir: &Path, data: &Path) -> Result<()> {
    run(initdb_command(bindir).arg(data)).map(drop)
}

/// Makes the cluster that pg_upgrade fills. Since PostgreSQL 18 clusters have checksums by default, which the
/// older cluster lacks.
pub fn initdb_for_upgrade(bindir: &Path, data: &Path) -> Result<()> {
    run(initdb_command(bindir).arg(data).arg("--no-data-checksums")).map(drop)
}

fn initdb_command(bindir: &Path) -> Command {
    let mut initdb = Command::new(bindir.join("initdb"));
    // With segments of the usual size, a third of what is copied for each server would be WAL.
    initdb.args([
        "--no-sync",
        "--wal-segsize=1",
        "-A",
        "trust",
        "-U",
        "postgres",
        "-E",
        "UTF8",
        "--locale=C.UTF-8",
        "-D",
    ]);
    initdb
}

/// Copies a template to `data` and gives the copy a system identifier of its own, because real servers are
/// not clones of each other. Packages with the server alone lack the program for that, so there each cluster
/// is made from scratch.
pub fn copy_template(template: Template, bindir: &Path, data: &Path, number: u32) -> Result<()> {
    if !bindir.join("pg_resetwal").exists() {
        return initdb(bindir, data);
    }
    copy(&template.made(bindir)?, data)?;
    let control = data.join("global/pg_control");
    let mut bytes = std::fs::read(&control)?;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    let identifier =
        (now.as_secs() << 32) | (u64::from(std::process::id() & 0xf_ffff) << 12) | u64::from(number);
    bytes[..8].copy_from_slice(&identifier.to_ne_bytes());
    std::fs::write(&control, bytes)?;
    // pg_resetwal writes the control file with a valid checksum, and WAL with this identifier.
    run(Command::new(bindir.join("pg_resetwal")).arg("-f").arg(data))?;
    Ok(())
}
