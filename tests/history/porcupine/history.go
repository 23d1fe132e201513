package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// What this program needs of an event; see docs/internals/histories.md.
type event struct {
	Event       string    `json:"event"`
	Format      int       `json:"format"`
	Publication string    `json:"publication"`
	Messages    []message `json:"messages"`
	IDs         []string  `json:"ids"`
	Subscriber  string    `json:"subscriber"`
	Channels    []string  `json:"channels"`
	Cursor      string    `json:"cursor"`
	Gaps        []gap     `json:"gaps"`
	End         string    `json:"end"`
	MayLose     bool      `json:"may_lose"`
}

type message struct {
	ID        string   `json:"id"`
	Channels  []string `json:"channels"`
	Data      string   `json:"data"`
	Ephemeral bool     `json:"ephemeral"`
}

type gap struct {
	Channel string `json:"channel"`
	Reason  string `json:"reason"`
}

// The place of a message or a cursor.
type place struct {
	epoch    string
	sequence int
}

func placeOf(text string) (place, error) {
	at := strings.LastIndex(text, "-")
	sequence, err := strconv.Atoi(text[at+1:])
	if at < 1 || err != nil {
		return place{}, fmt.Errorf("%q is neither a cursor nor an id", text)
	}
	return place{text[:at], sequence}, nil
}

// Whether the epoch a is earlier than b.
func earlier(a, b string) bool {
	if len(a) != len(b) {
		return len(a) < len(b)
	}
	return a < b
}

// A message in a log. It was appended between two lines; the second is 0 if its publisher was never told.
type entry struct {
	place
	id, data         string
	channels         []string
	called, returned int
	// Whether it is dropped after some seconds, and from a channel that is closed, and nobody is told.
	ephemeral bool
	// Whether it may be gone, and nobody need be told: it is ephemeral, it was not acknowledged, or nobody can know that
	// it was lost.
	mayBeMissing bool
}

type poll struct {
	called, returned int
	channels         []string
	before           *place // nil in a first poll, which may begin anywhere
	after            place
	messages         []message
	gaps             map[string]bool
	lost             bool
}

type history struct {
	lines    int
	entries  map[string]*entry // by id
	polls    []*poll
	lossless bool   // whether no acknowledged message may be gone
	conflict string // an id that is two messages

	published map[string][]string // the data of a publication, by its name
	called    map[string]int      // the line of its publication, by data
	channels  map[string][]string // by data
	ephemeral map[string]bool     // by data
	waiting   map[string]*poll    // those under way, by subscriber
	putBack   []putBack
}

// From this line on, the log ended there, and nobody could know.
type putBack struct {
	line int
	end  place
}

func read(path string) (*history, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	h := &history{
		entries: map[string]*entry{}, lossless: true, published: map[string][]string{}, called: map[string]int{},
		channels: map[string][]string{}, ephemeral: map[string]bool{}, waiting: map[string]*poll{},
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		h.lines++
		var e event
		err := json.Unmarshal(lines.Bytes(), &e)
		if err == nil {
			err = h.take(&e)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %v", h.lines, err)
		}
	}
	for _, e := range h.entries {
		e.mayBeMissing = e.ephemeral || !h.lossless && e.returned == 0
		for _, p := range h.putBack {
			later := earlier(p.end.epoch, e.epoch) || p.end.epoch == e.epoch && e.sequence > p.end.sequence
			e.mayBeMissing = e.mayBeMissing || later && e.called < p.line
		}
	}
	return h, lines.Err()
}

func (h *history) take(e *event) error {
	switch e.Event {
	case "begin":
		if e.Format != 1 {
			return fmt.Errorf("the format is %d, and this program knows format 1", e.Format)
		}
	case "publish":
		for _, m := range e.Messages {
			h.published[e.Publication] = append(h.published[e.Publication], m.Data)
			h.called[m.Data], h.channels[m.Data], h.ephemeral[m.Data] = h.lines, m.Channels, m.Ephemeral
		}
	case "acknowledged":
		data := h.published[e.Publication]
		if len(data) != len(e.IDs) {
			h.conflict = fmt.Sprintf("%s got %d ids for %d messages", e.Publication, len(e.IDs), len(data))
			return nil
		}
		for n, id := range e.IDs {
			if err := h.note(id, data[n], h.lines); err != nil {
				return err
			}
		}
	case "poll":
		h.waiting[e.Subscriber] = &poll{called: h.lines, channels: e.Channels}
		if strings.Contains(e.Cursor, "-") {
			before, err := placeOf(e.Cursor)
			h.waiting[e.Subscriber].before = &before
			return err
		}
	case "answered":
		return h.answered(e)
	case "fault":
		h.lossless = h.lossless && !e.MayLose
	case "put_back":
		end, err := placeOf(e.End)
		h.lossless, h.putBack = false, append(h.putBack, putBack{h.lines, end})
		return err
	}
	return nil
}

func (h *history) answered(e *event) error {
	p := h.waiting[e.Subscriber]
	if p == nil {
		return fmt.Errorf("the subscriber %q had not polled", e.Subscriber)
	}
	delete(h.waiting, e.Subscriber)
	h.polls = append(h.polls, p)
	p.returned, p.messages, p.gaps = h.lines, e.Messages, map[string]bool{}
	for _, gap := range e.Gaps {
		p.gaps[gap.Channel] = true
		p.lost = p.lost || gap.Reason == "lost"
	}
	for _, m := range e.Messages {
		if err := h.note(m.ID, m.Data, 0); err != nil {
			return err
		}
	}
	var err error
	p.after, err = placeOf(e.Cursor)
	return err
}

// An id is told to somebody; to its publisher, if returned is not 0.
func (h *history) note(id, data string, returned int) error {
	known := h.entries[id]
	if known == nil {
		at, err := placeOf(id)
		if err != nil {
			return err
		}
		if h.called[data] == 0 {
			h.conflict = fmt.Sprintf("%q is delivered, and nobody published it", data)
		}
		known = &entry{
			place: at, id: id, data: data, channels: h.channels[data], ephemeral: h.ephemeral[data], called: h.called[data],
		}
		h.entries[id] = known
	}
	if known.data != data {
		h.conflict = fmt.Sprintf("the id %s is %q and %q", id, known.data, data)
	}
	if returned > 0 {
		known.returned = returned
	}
	return nil
}

// The name of the log that an epoch is part of.
func (h *history) logOf(epoch string) string {
	if h.lossless {
		return "all"
	}
	return epoch
}
