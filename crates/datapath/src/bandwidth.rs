/// How a token bucket is set for a limit: what `tc` would be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Bytes per second.
    pub rate: u64,
    /// Bytes that may leave at once after a silence.
    pub burst: u32,
    /// Bytes that may wait; what comes on top is dropped.
    pub limit: u32,
}

/// No link here is faster (8 Tbit/s), and `tc` cannot show much more.
const FASTEST: u64 = 1_000_000_000_000;

/// Bursts of 100 ms let a timer that fires every few milliseconds keep the rate; a bucket
/// smaller than some packets would drop them for ever.
const BURST_MILLISECONDS: u64 = 100;
const BURST_PACKETS: u64 = 10;

/// How long a packet may wait before it is dropped, on top of the burst.
const QUEUE_MILLISECONDS: u64 = 50;

impl Shape {
    /// `None` for a limit of zero, which in CNI's convention is no limit.
    pub fn new(bytes_per_second: u64, mtu: u32) -> Option<Self> {
        if bytes_per_second == 0 {
            return None;
        }
        let rate = bytes_per_second.min(FASTEST);
        let burst = (rate * BURST_MILLISECONDS / 1000).max(u64::from(mtu) * BURST_PACKETS);
        let limit = rate * QUEUE_MILLISECONDS / 1000 + burst;
        Some(Self { rate, burst: saturated(burst), limit: saturated(limit) })
    }

    /// The burst as the kernel's clock counts it: how long it lasts at this rate, in ticks of
    /// 64 ns (`PSCHED_SHIFT` 6, linux/pkt_sched.h).
    pub(crate) fn burst_ticks(&self) -> u32 {
        saturated(u64::from(self.burst) * 1_000_000_000 / self.rate / 64)
    }
}

fn saturated(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_burst_is_a_tenth_of_a_second_or_ten_packets() {
        let shape = Shape::new(1_250_000, 1500).unwrap();
        assert_eq!(shape, Shape { rate: 1_250_000, burst: 125_000, limit: 187_500 });
        assert_eq!(shape.burst_ticks(), 1_562_500);
        assert_eq!(Shape::new(1000, 1500).unwrap().burst, 15_000);
    }

    #[test]
    fn no_rate_wraps() {
        for rate in [1, 2, 1000, 1 << 32, FASTEST, u64::MAX] {
            let shape = Shape::new(rate, 9001).unwrap();
            assert!(shape.burst >= 90_010, "{shape:?}");
            assert!(shape.limit >= shape.burst, "{shape:?}");
            assert!(shape.burst_ticks() > 0, "{shape:?}");
        }
        assert_eq!(Shape::new(1, 1500).unwrap().burst_ticks(), u32::MAX);
        assert_eq!(Shape::new(u64::MAX, 1500).unwrap().burst, u32::MAX);
    }

    #[test]
    fn zero_is_no_limit() {
        assert_eq!(Shape::new(0, 1500), None);
    }
}
