use std::path::PathBuf;

/// What is measured and where the result goes.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Pods of each batch series: calls behind every figure.
    pub(crate) pods: usize,
    pub(crate) parallel: Vec<usize>,
    pub(crate) records: Vec<usize>,
    pub(crate) json: Option<PathBuf>,
    pub(crate) svg: Option<PathBuf>,
    /// The plugin as it ships.
    pub(crate) plugin: PathBuf,
    /// A static program that does nothing.
    pub(crate) empty: PathBuf,
}

impl Options {
    pub(crate) fn read(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            pods: 96,
            parallel: vec![1, 2, 8, 32],
            records: vec![0, 1_000, 16_000],
            json: None,
            svg: None,
            plugin: PathBuf::new(),
            empty: PathBuf::new(),
        };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
            match argument.as_str() {
                "--quick" => {
                    options.pods = 32;
                    options.parallel = vec![1, 32];
                    options.records = vec![0];
                }
                "--pods" => {
                    let text = value()?;
                    options.pods = text.parse().map_err(|_| format!("--pods {text}: a number"))?;
                }
                "--parallel" => options.parallel = numbers(&argument, &value()?)?,
                "--records" => options.records = numbers(&argument, &value()?)?,
                "--json" => options.json = Some(value()?.into()),
                "--svg" => options.svg = Some(value()?.into()),
                "--plugin" => options.plugin = value()?.into(),
                "--empty" => options.empty = value()?.into(),
                _ => return Err(format!("unknown argument {argument}")),
            }
        }
        options.records.sort_unstable();
        if options.parallel.contains(&0) {
            return Err("--parallel: 1 or more".to_owned());
        }
        if !(8..=250).contains(&options.pods) {
            return Err("--pods: 8 to 250".to_owned());
        }
        Ok(options)
    }
}

fn numbers(argument: &str, text: &str) -> Result<Vec<usize>, String> {
    let number = |text: &str| text.parse().map_err(|_| format!("{argument} {text}: numbers"));
    text.split(',').map(number).collect()
}
