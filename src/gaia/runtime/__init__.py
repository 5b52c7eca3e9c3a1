"""What every room uses: threads, event loops, locks, clocks, deadlines, log events, text that is safe to show."""
