// Judges histories (docs/internals/histories.md) with porcupine, a checker of linearizability that others wrote.
//
// The model is one log. A publication appends its messages; a poll reads what the log has after its cursor, up to the
// cursor of its answer, wherever the server chose to put that. So a poll may return any prefix of what comes after its
// cursor, and a gap on a channel excuses what is absent there. Each operation must take effect at one moment between its
// call and its return, in the order of the lines of the history.
//
// Usage: porcupine FILE...; the exit status is 0 if all are linearizable, 1 if one is not, 2 if one cannot be read.
package main

import (
	"fmt"
	"os"
	"slices"
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

const timeout = 5 * time.Minute

func main() {
	status := 0
	for _, path := range os.Args[1:] {
		began := time.Now()
		h, err := read(path)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(2)
		}
		logs, verdict := judge(h)
		if verdict != "linearizable" {
			status = 1
		}
		fmt.Printf("%s: %d appends, %d polls, logs: %d, %.2f s: %s\n",
			path, len(h.entries), len(h.polls), logs, time.Since(began).Seconds(), verdict)
	}
	os.Exit(status)
}

// An operation on a log, as the model sees it.
type operation struct {
	isAppend bool
	// An append: how many entries come before this one. A poll: how many it has read or passed.
	number int
	// Of a poll: what no log with these entries can have answered; empty if one can.
	wrong string
}

// The state of the model is how many of the known entries are in the log: their sequences say in which order they came.
var model = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, input, output any) (bool, any) {
		count, op := state.(int), input.(operation)
		if op.isAppend {
			return count == op.number, count + 1
		}
		return count >= op.number && op.wrong == "", count
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprint(input) },
}

// Returns the number of logs, and the verdict.
//
// If nothing could be lost, all epochs continue each other, and there is one log. Otherwise each epoch has its own: where
// one ends and the next begins, entries may be gone. Sequences go on from one to the next either way.
func judge(h *history) (int, string) {
	if h.conflict != "" {
		return 0, "NOT linearizable: " + h.conflict
	}
	logs := map[string][]*entry{}
	for _, e := range h.entries {
		logs[h.logOf(e.epoch)] = append(logs[h.logOf(e.epoch)], e)
	}
	for name, log := range logs {
		slices.SortFunc(log, func(a, b *entry) int { return a.sequence - b.sequence })
		for n := 1; n < len(log); n++ {
			if log[n-1].sequence == log[n].sequence {
				return len(logs), fmt.Sprintf("NOT linearizable: %s and %s are one place", log[n-1].id, log[n].id)
			}
		}
		numbers := map[string]int{}
		for n, e := range log {
			numbers[e.id] = n
		}
		operations := appends(log, h.lines)
		for _, p := range h.polls {
			if op, concerns := p.operationOn(name, log, numbers, h.lossless); concerns {
				if op.wrong != "" {
					return len(logs), fmt.Sprintf("NOT linearizable: line %d: %s", p.returned, op.wrong)
				}
				operations = append(operations, porcupine.Operation{
					Input: op, Call: int64(p.called), Return: int64(p.returned),
				})
			}
		}
		switch porcupine.CheckOperationsTimeout(model, operations, timeout) {
		case porcupine.Illegal:
			return len(logs), fmt.Sprintf("NOT linearizable: the log %q has no order that fits all calls and returns", name)
		case porcupine.Unknown:
			return len(logs), fmt.Sprintf("undecided after %v: the log %q", timeout, name)
		}
	}
	return len(logs), "linearizable"
}

func appends(log []*entry, lines int) []porcupine.Operation {
	var operations []porcupine.Operation
	for n, e := range log {
		returned := e.returned
		if returned == 0 {
			returned = lines + 1 // nobody was told when
		}
		operations = append(operations, porcupine.Operation{
			Input: operation{isAppend: true, number: n}, Call: int64(e.called), Return: int64(returned),
		})
	}
	return operations
}

// What this poll did with one log, and whether it had to do with it. O(log n + what it passes).
func (p *poll) operationOn(name string, log []*entry, numbers map[string]int, lossless bool) (operation, bool) {
	follows := p.before != nil && !p.lost // its answer continues what its client has read
	concerns := lossless || name == p.after.epoch
	if follows && !lossless {
		concerns = !earlier(name, p.before.epoch) && !earlier(p.after.epoch, name)
	}
	var op operation
	received := map[string]bool{}
	last := -1
	for _, m := range p.messages {
		number, known := numbers[m.ID]
		if !known {
			continue // of another log
		}
		e := log[number]
		concerns = true
		received[m.ID] = true
		switch {
		case e.sequence <= last:
			op.wrong = m.ID + " comes too late in the answer"
		case follows && e.sequence <= p.before.sequence:
			op.wrong = m.ID + " is not after the cursor"
		case e.sequence > p.after.sequence:
			op.wrong = m.ID + " is after the cursor of the answer"
		case len(m.Channels) == 0 || !p.mayName(common(p.channels, e.channels), m.Channels, e.ephemeral):
			op.wrong = m.ID + " has other channels"
		}
		last = e.sequence
		op.number = max(op.number, number+1)
	}
	if !follows || !concerns {
		return op, concerns
	}
	for n := firstAfter(log, p.before.sequence); n < len(log) && log[n].sequence <= p.after.sequence; n++ {
		e := log[n]
		if e.mayBeMissing {
			continue
		}
		op.number = max(op.number, n+1)
		on := common(p.channels, e.channels)
		excused := slices.ContainsFunc(on, func(channel string) bool { return p.gaps[channel] })
		if len(on) > 0 && !received[e.id] && !excused {
			op.wrong = e.id + " is absent, and there is no gap"
		}
	}
	return op, concerns
}

// The number of the first entry after a sequence.
func firstAfter(log []*entry, sequence int) int {
	return sort.Search(len(log), func(n int) bool { return log[n].sequence > sequence })
}

// Whether a message on these channels may name only those: what is left out has a gap, if the poll may tell gaps, or was
// closed, if the message is ephemeral.
func (p *poll) mayName(on, named []string, ephemeral bool) bool {
	for _, channel := range on {
		if !ephemeral && !slices.Contains(named, channel) && p.before != nil && !p.gaps[channel] {
			return false
		}
	}
	return slices.Equal(common(on, named), named)
}

// Those of the channels in wanted that are in given, in the order of wanted.
func common(wanted, given []string) []string {
	found := []string{}
	for _, channel := range wanted {
		if slices.Contains(given, channel) {
			found = append(found, channel)
		}
	}
	return found
}
