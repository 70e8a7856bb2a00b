//! `make bench`: speed, each measure beside a reference in the same run.

use shardmaster_tests::bench::{self, Size};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let size = if arguments.iter().any(|a| a == "--quick") { Size::Quick } else { Size::Full };
    let names: Vec<&str> = arguments.iter().map(String::as_str).filter(|a| *a != "--quick").collect();
    if let Some(unknown) = names.iter().find(|name| !bench::ALL.iter().any(|(known, _)| known == *name)) {
        let known: Vec<&str> = bench::ALL.iter().map(|(name, _)| *name).collect();
        eprintln!("unknown benchmark \"{unknown}\"; bench [--quick] [{}]", known.join(" | "));
        return ExitCode::from(2);
    }
    let mut measures = Vec::new();
    let mut broken = false;
    for (name, run) in bench::ALL {
        if !names.is_empty() && !names.contains(&name) {
            continue;
        }
        println!("{name}");
        match run(size) {
            Ok(more) => measures.extend(more),
            Err(error) => {
                eprintln!("{name}: {error}");
                broken = true;
            }
        }
    }
    bench::print_table(&measures);
    if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
