//! Tenants move from one running server to another while clients keep writing; a
//! count proves that nothing was lost.

use shardmaster_tests::demo::{Demo, Options};
use std::process::ExitCode;

const HELP: &str = "\
demo [--no-capture] [--namespaces] [--rows N] [--tenants N] [--writers N] [--seconds N]

  --no-capture   skips the capture of changes: writes must be lost, and be found lost
  --namespaces   both shards are namespaces of the master's own database
  --rows N       rows at the start (300000)
  --tenants N    tenants, every second of which moves (20)
  --writers N    clients (4)
  --seconds N    how long clients write before and after the move (2)";

fn options() -> Result<Options, String> {
    let mut options = Options::default();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments.next().and_then(|text| text.parse().ok());
            value.ok_or_else(|| format!("{argument} needs a number"))
        };
        match argument.as_str() {
            "--no-capture" => options.capture = false,
            "--namespaces" => options.namespaces = true,
            "--rows" => options.rows = number()?,
            "--tenants" => options.tenants = number()?.max(2),
            "--writers" => options.writers = number()?.max(1),
            "--seconds" => options.seconds = number()?,
            "--help" | "-h" => return Err(HELP.into()),
            _ => return Err(format!("unknown argument \"{argument}\"\n{HELP}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let outcome = match options() {
        Ok(options) => Demo::run(&options),
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(report) if report.is_right() => ExitCode::SUCCESS,
        Ok(_) => {
            println!("\nA write was lost, doubled or misplaced.");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("demo: {error}");
            ExitCode::from(3)
        }
    }
}
