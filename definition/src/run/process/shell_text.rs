//! Refuses values that would become part of a program: `sh -c "grep {{ word }} notes"` runs whatever the value says.

use std::path::Path;

use ground::base::template;

use super::argument::{Argument, ConditionalArguments, EachItem};
use crate::run::DefinitionMistake;

/// Interpreters with the options whose next argument is code.
const INTERPRETERS: [(&str, &[&str]); 14] = [
    ("sh", &["-c"]),
    ("bash", &["-c"]),
    ("dash", &["-c"]),
    ("ash", &["-c"]),
    ("zsh", &["-c"]),
    ("ksh", &["-c"]),
    ("fish", &["-c"]),
    ("python", &["-c"]),
    ("python3", &["-c"]),
    ("perl", &["-e", "-E"]),
    ("ruby", &["-e"]),
    ("node", &["-e", "--eval", "-p", "--print"]),
    ("php", &["-r"]),
    ("lua", &["-e"]),
];

/// Finds an argument that is code and has a placeholder in it. An argument that is only a placeholder is code on purpose.
pub(super) fn check(argv: &[Argument]) -> Result<(), DefinitionMistake> {
    let arguments: Vec<(usize, String)> = argv
        .iter()
        .enumerate()
        .flat_map(|(index, argument)| {
            let texts = match argument {
                Argument::Template(text) => vec![text.clone()],
                Argument::When(ConditionalArguments { args, .. }) => args.clone(),
                Argument::Each(EachItem { each, prefix }) => vec![format!("{prefix}{each}")],
                Argument::OutputFile(file) => vec![file.output_file.clone()],
                Argument::InputFile(file) => vec![format!("{}{}", file.prefix, file.input_file)],
            };
            texts.into_iter().map(move |text| (index, text))
        })
        .collect();
    for (position, (_, program)) in arguments.iter().enumerate() {
        let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some((_, options)) = INTERPRETERS.iter().find(|(known, _)| *known == name) else { continue };
        let rest = &arguments[position + 1..];
        let option = rest.iter().position(|(_, option)| takes_code(option, options));
        let code = option.and_then(|option| rest[option + 1..].iter().find(|(_, text)| *text != "--"));
        if let Some((index, code)) = code
            && !template::is_constant(code)
            && !template::is_reference(code)
        {
            let message =
                format!("`{name}` would run the value as code; pass it as an argument of its own: {}", mending(name));
            return Err(DefinitionMistake::new(format!("argv[{index}]"), &message));
        }
    }
    Ok(())
}

/// Whether `option` is one of `options`, also combined with others as in `-ec`.
fn takes_code(option: &str, options: &[&str]) -> bool {
    options.contains(&option)
        || options.iter().filter_map(|known| known.strip_prefix('-')).any(|letter| {
            letter.len() == 1 && option.starts_with('-') && !option.starts_with("--") && option.ends_with(letter)
        })
}

fn mending(interpreter: &str) -> &'static str {
    match interpreter {
        "python" | "python3" => r#"["python3", "-c", "import sys; … sys.argv[1]", "{{ value }}"]"#,
        "perl" => r#"["perl", "-e", "… $ARGV[0]", "--", "{{ value }}"]"#,
        "ruby" => r#"["ruby", "-e", "… ARGV[0]", "--", "{{ value }}"]"#,
        "node" => r#"["node", "-e", "… process.argv[1]", "--", "{{ value }}"]"#,
        "php" => r#"["php", "-r", "… $argv[1]", "--", "{{ value }}"]"#,
        "lua" => "put the code into a file and name the file",
        _ => r#"["sh", "-c", "… \"$1\"", "sh", "{{ value }}"]"#,
    }
}
