use berth_tests::Stopwatch;

/// What the spectator sees: numbered steps, a tick for each thing that was shown.
pub(crate) struct Stage {
    steps: u32,
    ticks: u32,
    stopwatch: Stopwatch,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self { steps: 0, ticks: 0, stopwatch: Stopwatch::start() }
    }

    pub(crate) fn step(&mut self, title: &str) {
        self.steps += 1;
        println!("\n{:>2}. {title}", self.steps);
    }

    pub(crate) fn done(&mut self, what: &str) {
        self.ticks += 1;
        println!("   ✓ {what}");
    }

    /// Another program's output, set off from ours.
    pub(crate) fn show(&mut self, text: &str) {
        self.ticks += 1;
        text.lines().for_each(|line| println!("   │ {line}"));
    }

    pub(crate) fn end(&self) {
        let (steps, ticks) = (self.steps, self.ticks);
        let seconds = self.stopwatch.elapsed().as_secs_f64();
        println!(
            "\nAll {steps} steps are as they should be ({ticks} things shown, {seconds:.1} s)."
        );
    }
}
