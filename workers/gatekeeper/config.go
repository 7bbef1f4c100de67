package main

import (
	"fmt"

	"github.com/open-policy-agent/gatekeeper/v3/pkg/controller/config/process"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/gator/reader"
	"github.com/open-policy-agent/gatekeeper/v3/pkg/keys"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// configuration is what the Config and the SyncSets say.
type configuration struct {
	excluder *process.Excluder
	// excludes is set if the Config excludes Namespaces.
	excludes bool
	// synced are the kinds of a cluster that make the inventory.
	synced []schema.GroupVersionKind
}

// configurationOf reads the Config and the SyncSets of the documents, and returns a problem for each that cannot be used.
// Gatekeeper has one Config, by its name.
func configurationOf(objects []document) (configuration, []error) {
	found := configuration{excluder: process.New()}
	var problems []error
	place := ""
	for _, object := range objects {
		var err error
		switch object.GroupVersionKind().Group {
		case configGroup:
			if place != "" {
				err = fmt.Errorf("a Config stands in %s already", place)
			} else if err = found.addConfig(object); err == nil {
				place = object.Place
			}
		case syncSetGroup:
			err = found.addSyncSet(object)
		}
		if err != nil {
			problems = append(problems, problem(object, err))
		}
	}
	return found, problems
}

func (c *configuration) addConfig(object document) error {
	read, err := reader.ToConfig(gatekeeperScheme, object.Unstructured)
	if err != nil {
		return err
	}
	if read.Name != keys.Config.Name {
		return fmt.Errorf("a Config has the name %q", keys.Config.Name)
	}
	c.excluder.Add(read.Spec.Match)
	c.excludes = len(read.Spec.Match) > 0
	for _, entry := range read.Spec.Sync.SyncOnly {
		c.synced = append(c.synced, entry.ToGroupVersionKind())
	}
	return nil
}

func (c *configuration) addSyncSet(object document) error {
	read, err := reader.ToSyncSet(gatekeeperScheme, object.Unstructured)
	if err != nil {
		return err
	}
	for _, entry := range read.Spec.GVKs {
		c.synced = append(c.synced, entry.ToGroupVersionKind())
	}
	return nil
}
